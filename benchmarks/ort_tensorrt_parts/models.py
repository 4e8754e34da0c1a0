"""The ONNX files of the sections: lecture 14's classifier, and a graph with one node that TensorRT cannot take. `models.py FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def main() -> None:
    folder = Path(sys.argv[1])
    export_classifier(folder / "classifier.onnx")
    onnx.save(with_determinant(), folder / "determinant.onnx")


def export_classifier(path: Path) -> None:
    """The small classifier, batch size open; `export_onnx` needs packages that this interpreter may lack."""
    import torch

    from course_lib.models import classifier

    open_batch = {"image": {0: "batch"}, "logits": {0: "batch"}}
    torch.onnx.export(
        classifier("small").eval(),
        (torch.rand(2, 1, 32, 32),),
        str(path),
        input_names=["image"],
        output_names=["logits"],
        dynamic_axes=open_batch,
        opset_version=17,
    )


def with_determinant() -> onnx.ModelProto:
    """Convolutions, then a ``Det`` (matrix determinant, for which TensorRT has no importer), then convolutions; batch size open."""
    rng, node = np.random.default_rng(0), helper.make_node
    weights = [
        numpy_helper.from_array((rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32), name)
        for name, shape in {"w1": (32, 1, 3, 3), "w2": (64, 32, 3, 3), "w3": (16, 64, 3, 3), "w4": (10, 16)}.items()
    ]
    shapes = {"blocks": (0, 64, 8, 2, 8, 2), "rows": (0, 64, 8, 8)}
    weights += [numpy_helper.from_array(np.array(shape, np.int64), name) for name, shape in shapes.items()]
    nodes = [
        node("Conv", ["image", "w1"], ["c1"], "conv1", pads=[1] * 4),
        node("Relu", ["c1"], ["r1"], "relu1"),
        node("Conv", ["r1", "w2"], ["c2"], "conv2", pads=[1] * 4, strides=[2, 2]),
        node("Relu", ["c2"], ["r2"], "relu2"),
        node("Reshape", ["r2", "blocks"], ["b"], "reshape1"),
        node("Transpose", ["b"], ["t"], "transpose", perm=[0, 1, 2, 4, 3, 5]),
        node("Det", ["t"], ["d"], "det"),
        node("Reshape", ["d", "rows"], ["e"], "reshape2"),
        node("Conv", ["e", "w3"], ["c3"], "conv3", pads=[1] * 4),
        node("Relu", ["c3"], ["r3"], "relu3"),
        node("GlobalAveragePool", ["r3"], ["p"], "pool"),
        node("Flatten", ["p"], ["f"], "flatten"),
        node("Gemm", ["f", "w4"], ["logits"], "head", transB=1),
    ]
    shapes_of: dict[str, list[str | int]] = {"image": ["batch", 1, 32, 32], "logits": ["batch", 10]}
    given, wanted = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shapes_of[name]) for name in ("image", "logits"))
    graph = helper.make_graph(nodes, "determinant", [given], [wanted], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model


if __name__ == "__main__":
    main()
