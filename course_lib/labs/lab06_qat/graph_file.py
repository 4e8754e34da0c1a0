"""The network of lab 06 as ONNX: the float graph that learners get, and the graph of a quantized network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from course_lib.labs.lab06_qat.sandboxed.torch_forward import LAYERS
from course_lib.labs.lab06_qat.stored import Stored
from course_lib.labs.lab06_qat.stored import check as check_layers

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

MODEL, MAX_BYTES = "model.onnx", 1 << 20
OPSET = 17  # the newest that every builder of the course reads
_CHAIN = ("stem", "expand1", "depth1", "project1", "expand2", "depth2", "project2")


def float_graph(layers: Mapping[str, tuple[Any, Any]]) -> ModelProto:
    """The float network as ONNX: input ``image``, output ``logits``, and a node named after each layer, such as ``depth1``.

    A layer's node reads its input, ``NAME.weight`` and ``NAME.bias``, in this order.

    Args:
        layers: weight and bias by name, norms folded, as arrays or tensors on the CPU.

    Raises:
        CourseError: a layer is missing or has another shape.
    """
    arrays = {name: [np.asarray(part.detach() if hasattr(part, "detach") else part, np.float32) for part in pair]
              for name, pair in layers.items()}  # fmt: skip
    return graph({name: Stored(weight, None, bias, None) for name, (weight, bias) in arrays.items()})


def graph(layers: Mapping[str, Stored]) -> ModelProto:
    """The network with Q/DQ pairs for everything that is quantized.

    Weights are stored in float in front of their pair, which every builder of the course reads.

    Raises:
        CourseError: see `stored.check`.
    """
    import onnx
    from onnx import helper, numpy_helper

    check_layers(layers)
    constants: dict[str, np.ndarray] = {}
    nodes: list[NodeProto] = []
    for node in _float_nodes():
        if node.name in LAYERS:
            nodes += _pairs(node, layers[node.name], constants)
        nodes.append(node)
    image = helper.make_tensor_value_info("image", onnx.TensorProto.FLOAT, ["batch", 1, 32, 32])
    logits = helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, ["batch", LAYERS["head"].outputs])
    made = helper.make_graph(
        nodes, "uneven", [image], [logits], [numpy_helper.from_array(array, name) for name, array in constants.items()]
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    onnx.checker.check_model(model)
    return model


def _float_nodes() -> Iterator[NodeProto]:
    from onnx import helper

    x = "image"
    shortcut = ""
    for name in (*_CHAIN, "mix"):
        shape = LAYERS[name]
        yield helper.make_node(
            "Conv",
            [x, f"{name}.weight", f"{name}.bias"],
            [f"{name}.sum"],
            name=name,
            kernel_shape=[shape.kernel] * 2,
            strides=[shape.stride] * 2,
            pads=[shape.kernel // 2] * 4,
            group=shape.groups,
        )
        x = f"{name}.sum"
        if shape.silu:
            yield helper.make_node("Sigmoid", [x], [f"{name}.sigmoid"], name=f"{name}.sigmoid")
            yield helper.make_node("Mul", [x, f"{name}.sigmoid"], [f"{name}.silu"], name=f"{name}.silu")
            x = f"{name}.silu"
        if name == "project1":
            shortcut = x
        if name == "project2":
            yield helper.make_node("Add", [shortcut, x], ["residual"], name="residual")
            x = "residual"
    yield helper.make_node("GlobalAveragePool", [x], ["pool"], name="pool")
    yield helper.make_node("Flatten", ["pool"], ["flat"], name="flat")
    yield helper.make_node("Gemm", ["flat", "head.weight", "head.bias"], ["logits"], name="head", transB=1)


def _pairs(node: NodeProto, one: Stored, constants: dict[str, np.ndarray]) -> Iterator[NodeProto]:
    """The pairs before a layer's node, which then reads their results, and the constants of both."""
    name = node.name
    constants[f"{name}.weight"], constants[f"{name}.bias"] = np.asarray(one.values(), np.float32), one.bias
    for place, scale, axis in ((0, one.input_scale, {}), (1, one.scale, {"axis": 0})):
        if scale is not None:
            yield from _pair(node, place, np.asarray(scale, np.float32), axis, constants)


def _pair(
    node: NodeProto, place: int, scale: np.ndarray, axis: Mapping[str, Any], constants: dict[str, np.ndarray]
) -> Iterator[NodeProto]:
    from onnx import helper

    tensor = f"{node.name}.{('input', 'weight')[place]}"
    constants[f"{tensor}.scale"], constants[f"{tensor}.zero"] = scale, np.zeros(scale.shape, np.int8)
    parameters = [f"{tensor}.scale", f"{tensor}.zero"]
    yield helper.make_node(
        "QuantizeLinear", [node.input[place], *parameters], [f"{tensor}.codes"], f"{tensor}/quantize", **axis
    )
    yield helper.make_node(
        "DequantizeLinear", [f"{tensor}.codes", *parameters], [f"{tensor}.rounded"], f"{tensor}/dequantize", **axis
    )
    node.input[place] = f"{tensor}.rounded"
