"""What the runtime's checks need, in a folder: models, fresh inputs, and what PyTorch answers to them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper

from course_lib.models import classifier, export_onnx, fresh_digits


def prepare(folder: Path, *, opset: int = 17, seed: int | None = None) -> Path:
    """`small.onnx` with `small.npz`, the same after its weights were doubled in `changed.npz`, and `nonzero.onnx`."""
    model = classifier("small").eval()
    path = folder / "small.onnx"
    export_onnx(model, path, opset=opset)
    images = fresh_digits(64, seed=int(np.random.SeedSequence(seed).generate_state(1)[0])).images
    np.savez(folder / "small.npz", image=images, logits=_answers(path, images))

    changed = onnx.load(path)
    weights = {}
    for tensor in changed.graph.initializer:  # the last matrix: what is doubled there doubles differences of logits
        array = onnx.numpy_helper.to_array(tensor)
        if array.ndim == 2 or tensor.name.startswith("head."):  # a builder may merge a matrix and its bias: both are given
            weights[tensor.name] = array * np.float32(2)
            tensor.CopyFrom(onnx.numpy_helper.from_array(weights[tensor.name], tensor.name))
    assert weights, "the classifier has no matrix any more"
    onnx.save(changed, folder / "changed.onnx")
    np.savez(folder / "changed.npz", logits=_answers(folder / "changed.onnx", images), **weights)
    onnx.save(_nonzero(), folder / "nonzero.onnx")
    return folder


def _answers(path: Path, images: np.ndarray) -> np.ndarray:
    """By ONNX's reference evaluator for changed weights, which PyTorch confirms for the unchanged ones."""
    import onnxruntime

    logits = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"image": images})[0]
    if path.name == "small.onnx":
        with torch.inference_mode():
            eager = classifier("small").eval()(torch.from_numpy(images)).numpy()
        assert np.abs(logits - eager).max() < 1e-3 * np.abs(eager).max()
        return np.asarray(eager)
    return np.asarray(logits)


def _nonzero() -> onnx.ModelProto:
    """The positions of the positive numbers: how many there are depends on data."""
    nodes = [
        helper.make_node("Relu", ["x"], ["positive"], name="relu"),
        helper.make_node("NonZero", ["positive"], ["positions"], name="nonzero"),
    ]
    graph = helper.make_graph(
        nodes,
        "nonzero",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 16])],
        [helper.make_tensor_value_info("positions", TensorProto.INT64, [2, "n"])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
