"""Half precision without kernels for it: round every tensor to the type, and compute in float32 in between.

A GPU multiplies FP16 and BF16 numbers exactly and sums the products in float32. Half precision has two costs: each tensor is
rounded to 10 or 7 bits, and values that do not fit overflow. Casts emulate both here. The emulation does not cover kernels
that also keep their inner sums in half precision. It also leaves the inside of composite operators in float32, such as the
squares in a LayerNormalization.

ONNX Runtime on x86 has few FP16 kernels and hardly any in BF16. Without an FP16 kernel, it uses the same method.
"""

from __future__ import annotations

import onnx
import onnx_ir as ir

_HALVES = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
_WITHOUT_ARITHMETIC = {"Cast", "Constant", "ConstantOfShape", "Shape", "Size"}


def emulate(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of a half-precision model in which only Casts work on FP16 and BF16; it computes the same with float32 kernels.

    Each half tensor keeps its name, type and values. A node that reads or makes such a tensor is between Casts with the names
    ``x/wide`` before the node and ``x/round`` after it.

    Args:
        model: a model with the type of every tensor, as `cast` returns it. It is not changed.
    """
    opened = ir.from_proto(model)
    graph = opened.graph
    wide: dict[ir.Value, ir.Value] = {}
    for node in list(graph):
        if node.op_type in _WITHOUT_ARITHMETIC and not node.domain:
            continue
        for position, value in enumerate(node.inputs):
            if value is not None and value.dtype in _HALVES:
                if value not in wide:
                    wide[value] = _cast(value, ir.DataType.FLOAT, f"{value.name}/wide")
                    widening = wide[value].producer()
                    assert widening is not None
                    node.prepend(widening)
                node.replace_input_with(position, wide[value])
        for value in node.outputs:
            if value.dtype in _HALVES:
                _round_behind(node, value)
    return ir.to_proto(opened)


def _round_behind(node: ir.Node, value: ir.Value) -> None:
    """Let `node` make a float32 tensor, and round it directly after the node to the type of `value`."""
    half, name = value.dtype, value.name
    assert half is not None
    value.name, value.dtype = f"{name}/exact", ir.DataType.FLOAT
    rounded = _cast(value, half, f"{name}/round")
    rounded.name = name
    rounding = rounded.producer()
    assert rounding is not None
    value.replace_all_uses_with(rounded, replace_graph_outputs=True)
    rounding.replace_input_with(0, value)
    node.append(rounding)


def _cast(value: ir.Value, dtype: ir.DataType, name: str) -> ir.Value:
    """The result of a new Cast, which is not in the graph yet."""
    node = ir.node("Cast", [value], {"to": dtype}, name=name)
    result = node.outputs[0]
    result.name, result.type, result.shape = name, ir.TensorType(dtype), value.shape
    return result
