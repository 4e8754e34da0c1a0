"""Half precision without kernels for it: round every tensor to the type, and compute in float32 in between.

A GPU multiplies FP16 and BF16 numbers exactly and sums the products in float32. Half precision has two costs: each tensor is
rounded to 10 or 7 bits, and values that do not fit overflow. Casts emulate both here. The emulation does not cover kernels
that also keep their inner sums in half precision. Operators that square inside (ReduceL2, ReduceSumSquare) are written as a
product and a sum, as TensorRT's parser reads them. The inside of a LayerNormalization stays in float32.

ONNX Runtime on x86 has few FP16 kernels and hardly any in BF16. Without an FP16 kernel, it uses the same method.
"""

from __future__ import annotations

import onnx
import onnx_ir as ir

from course_lib.errors import PrecisionError

_HALVES = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
_INNER_SQUARES = {"ReduceL2", "ReduceSumSquare"}
_WITHOUT_ARITHMETIC = {"Cast", "Constant", "ConstantOfShape", "Shape", "Size"}


def emulate(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of a half-precision model in which only Casts work on FP16 and BF16; it computes the same with float32 kernels.

    Each half tensor keeps its name, type and values. A node that reads or makes such a tensor is between Casts with the names
    ``x/wide`` before the node and ``x/round`` after it.

    Args:
        model: a model with the type of every tensor, as `cast` returns it. It is not changed.

    Raises:
        PrecisionError: the type of a tensor is not known.
    """
    opened = ir.from_proto(model)
    graph = opened.graph
    for node in list(graph):
        if unknown := [value.name for value in node.outputs if value.name and value.dtype is None]:
            raise PrecisionError(
                f"the type of {unknown[0]!r}, which node {node.name!r} makes, is unknown: add it to value_info"
            )
        if node.op_type in _INNER_SQUARES and not node.domain:
            _square_outside(node)
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


def _square_outside(node: ir.Node) -> None:
    """Write the sum of squares that a node computes inside as the nodes Mul and ReduceSum, and its root as Sqrt."""
    data, result = node.inputs[0], node.outputs[0]
    assert data is not None
    squares = ir.node("Mul", [data, data], name=f"{node.name}/squares")
    squared = squares.outputs[0]
    squared.name, squared.type, squared.shape = f"{result.name}/squares", _own_type(data), data.shape
    node.prepend(squares)
    node.replace_input_with(0, squared)
    if node.op_type == "ReduceL2":
        root = ir.node("Sqrt", [result], name=f"{node.name}/root")
        rooted = root.outputs[0]
        rooted.name, rooted.type, rooted.shape = result.name, _own_type(result), result.shape
        result.name = f"{result.name}/sum"
        result.replace_all_uses_with(rooted, replace_graph_outputs=True)
        root.replace_input_with(0, result)
        node.append(root)
    node.op_type = "ReduceSum"
    if (axes := node.attributes.pop("axes", None)) is not None:  # an input since operator set 13, here later
        given = ir.node("Constant", [], {"value_ints": axes.as_ints()}, name=f"{node.name}/axes")
        given.outputs[0].name, given.outputs[0].type = f"{result.name}/axes", ir.TensorType(ir.DataType.INT64)
        node.prepend(given)
        node.resize_inputs(2)
        node.replace_input_with(1, given.outputs[0])


def _own_type(value: ir.Value) -> ir.TensorType:
    """A copy of a value's type: two values that share one would change together."""
    assert value.dtype is not None
    return ir.TensorType(value.dtype)


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
