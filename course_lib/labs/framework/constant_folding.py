"""Evaluate the constants of an ONNX graph, and find for every other value whether it depends on data or only on sizes.

Quantization is not folded, because Q/DQ pairs around weights show which layers compute in INT8.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np

from course_lib.errors import BuildError

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

QUANTIZATION = frozenset({"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"})
MOST_BYTES = 64 << 20  # of one folded constant


class Kind(Enum):
    """The origin of a value."""

    CONSTANT = "a constant"
    QUANTIZED = "a quantized constant"  # constant too, but its Q/DQ pair stays in the graph
    DIMENSION = "a size"  # dimensions of a tensor, and constants beside them, without any arithmetic
    COMPUTED_SIZE = "a number computed from sizes"
    DATA = "data"


# What rearranges integers without computing with them.
REARRANGING = frozenset({"Gather", "Slice", "Concat", "Squeeze", "Unsqueeze", "Identity", "Reshape", "Cast", "Split"})


def fold(model: ModelProto) -> dict[str, Kind]:
    """Evaluate every node that depends only on constants or static dimensions, in place. Return the kind of every remaining value.

    Integers wrap around as in numpy. Nodes on which no output depends are removed; the others keep their order and their names.

    Raises:
        BuildError: a constant cannot be evaluated, or has more than `MOST_BYTES`.
    """
    from onnx import helper, numpy_helper

    graph = model.graph
    shapes = inferred_shapes(model)
    constants = {tensor.name: tensor for tensor in graph.initializer}
    values: dict[str, np.ndarray] = {}  # of small constants and of partly known sizes, None for what is not known

    def value(name: str) -> np.ndarray:
        if name not in values:
            values[name] = numpy_helper.to_array(constants[name])
        return values[name]

    kinds = dict.fromkeys(constants, Kind.CONSTANT)
    kinds |= {info.name: Kind.DATA for info in graph.input if info.name not in constants}
    kept: list[NodeProto] = []
    opsets = [helper.make_opsetid(entry.domain, entry.version) for entry in model.opset_import]
    for node in graph.node:
        inputs = [name for name in node.input if name]
        found = [kinds[name] for name in inputs]
        if node.op_type not in QUANTIZATION and all(kind is Kind.CONSTANT for kind in found):
            for name, array in zip(
                node.output, _evaluated(node, [value(n) if n else None for n in node.input], opsets), strict=False
            ):
                constants[name], kinds[name], values[name] = numpy_helper.from_array(array, name), Kind.CONSTANT, array
            continue
        known = _sizes(node, shapes, values, value, kinds)
        if known is not None:
            name = node.output[0]
            if all(one is not None for one in known.flat):
                array = known.astype(np.int64)
                constants[name], kinds[name], values[name] = numpy_helper.from_array(array, name), Kind.CONSTANT, array
                continue
            values[name] = known
        kept.append(node)
        kind = _kind(node, found)
        kinds.update((name, kind) for name in node.output if name)
    kept, used = _needed(kept, {info.name for info in graph.output})
    inputs = [info for info in graph.input if info.name not in {tensor.name for tensor in graph.initializer}]
    kept_constants = [tensor for name, tensor in constants.items() if name in used]
    for field, rest in (("node", kept), ("initializer", kept_constants), ("input", inputs)):
        copies = [type(one).FromString(one.SerializeToString()) for one in rest]
        graph.ClearField(field)
        getattr(graph, field).extend(copies)
    return kinds


def _needed(nodes: list[NodeProto], wanted: set[str]) -> tuple[list[NodeProto], set[str]]:
    """The nodes on which the outputs depend, and the names that they read or that are outputs."""
    kept, used = [], set(wanted)
    for node in reversed(nodes):
        if used.intersection(node.output):
            kept.append(node)
            used.update(node.input)
    return kept[::-1], used


def _kind(node: NodeProto, found: list[Kind]) -> Kind:
    if node.op_type in ("Shape", "Size"):
        return Kind.DIMENSION if node.op_type == "Shape" else Kind.COMPUTED_SIZE
    if Kind.DATA in found:
        return Kind.DATA
    if Kind.DIMENSION in found or Kind.COMPUTED_SIZE in found:
        if node.op_type in ("Expand", "ConstantOfShape") or (node.op_type == "Slice" and found[0] is Kind.CONSTANT):
            return Kind.DATA  # a tensor of such a size: its numbers are constants
        if node.op_type == "Gather" and found[0] is Kind.CONSTANT:
            return Kind.DATA
        pure = node.op_type in (*REARRANGING, "Range") and Kind.COMPUTED_SIZE not in found
        return Kind.DIMENSION if pure else Kind.COMPUTED_SIZE
    return Kind.QUANTIZED


def _evaluated(node: NodeProto, inputs: list[np.ndarray | None], opsets: list[Any]) -> list[np.ndarray]:
    """Outputs of one node for constant inputs, by ONNX's reference implementation."""
    from onnx import TensorProto, helper
    from onnx.reference import ReferenceEvaluator

    names = [name for name in node.input if name]
    infos = [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in dict.fromkeys(names)]
    outputs = [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in node.output if name]
    model = helper.make_model(helper.make_graph([node], "constant", infos, outputs), opset_imports=opsets)
    feeds = {name: array for name, array in zip(node.input, inputs, strict=True) if name}
    try:
        with np.errstate(all="ignore"):
            arrays = [np.asarray(array) for array in ReferenceEvaluator(model).run(None, feeds)]
    except Exception as error:  # the reference implementation raises whatever numpy does
        raise BuildError(f"the constant {node.output[0]!r} ({node.op_type}) cannot be evaluated: {error}") from None
    if any(array.nbytes > MOST_BYTES for array in arrays):
        raise BuildError(f"the constant {node.output[0]!r} ({node.op_type}) is larger than {MOST_BYTES >> 20} MiB")
    return arrays


def inferred_shapes(model: ModelProto) -> dict[str, list[int | None]]:
    """Inferred shapes by name, None for a dynamic dimension; a value without a known rank is missing."""
    from onnx import shape_inference

    model = shape_inference.infer_shapes(model, data_prop=True)
    found = {}
    for info in (*model.graph.input, *model.graph.value_info, *model.graph.output):
        if info.type.tensor_type.HasField("shape"):
            dims = info.type.tensor_type.shape.dim
            found[info.name] = [dim.dim_value if dim.HasField("dim_value") else None for dim in dims]
    return found


def _sizes(node: NodeProto, shapes: Any, values: Any, value: Any, kinds: dict[str, Kind]) -> np.ndarray | None:
    """The known output of a node that rearranges sizes, as an array of objects; None for other nodes."""
    attributes = {one.name: one for one in node.attribute}
    if node.op_type == "Shape" and node.input[0] in shapes:
        shape = np.array([*shapes[node.input[0]], None], dtype=object)[:-1]
        start = attributes["start"].i if "start" in attributes else None
        return shape[start : attributes["end"].i if "end" in attributes else None]
    if node.op_type not in REARRANGING or kinds[node.input[0]] not in (Kind.DIMENSION, Kind.CONSTANT):
        return None
    partly = [n for n in node.input if n and kinds[n] is Kind.DIMENSION]
    if any(name not in values for name in partly) or (node.op_type != "Concat" and partly != [node.input[0]]):
        return None
    arrays = [np.asarray(value(name), dtype=object) for name in node.input if name]
    source, rest = arrays[0], [np.asarray(array, dtype=np.int64) for array in arrays[1:]] if node.op_type != "Concat" else []
    if node.op_type == "Concat":
        return np.concatenate(arrays)
    if node.op_type == "Gather" and source.ndim == 1:
        return np.asarray(np.take(source, rest[0]), dtype=object)
    if node.op_type == "Slice" and source.ndim == 1 and len(rest) >= 2:
        step = int(rest[3].flat[0]) if len(rest) > 3 else 1
        return source[int(rest[0].flat[0]) : int(rest[1].flat[0]) : step] if step > 0 else None
    if node.op_type in ("Squeeze", "Unsqueeze"):
        return source.reshape(-1)[0:1].reshape(()) if node.op_type == "Squeeze" and source.size == 1 else source.reshape(-1)
    return source if node.op_type == "Identity" else None
