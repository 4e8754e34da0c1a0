"""Rules for a submission's graph. It must not contain anything that a builder and a runner could read as two computations.

Sizes may shape tensors. They must not become numbers of the computation, and neither sizes nor constants may choose what is computed.
Every message names the node and what to do.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from course_lib.errors import BuildError
from course_lib.labs.framework.constant_folding import QUANTIZATION, REARRANGING, Kind, inferred_shapes

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto

CONTROL_FLOW = frozenset({"If", "Loop", "Scan", "SequenceMap"})
_RANDOM = frozenset({
    *("RandomUniform", "RandomUniformLike", "RandomNormal", "RandomNormalLike", "Multinomial", "Bernoulli"),
})  # fmt: skip
_SIZE_BY_VALUE = frozenset({"NonZero", "Compress", "Unique", "NonMaxSuppression", "StringNormalizer", "TfIdfVectorizer"})
_FOREIGN = frozenset({"Optional", "OptionalGetElement", "OptionalHasElement"})
_COMPARING = frozenset(
    {"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Or", "Xor", "Not", "IsNaN", "IsInf"}
)
_ARITHMETIC = frozenset({"Add", "Sub", "Mul", "Div", "ReduceProd"})
# TensorRT calls a layer by its nodes, as in "PWN(a, b)", "a + b" and "{ForeignNode[a...b]}": one node must not look like several.
_NOT_OF_A_NAME = re.compile(r"[^\w/.:-]|\.\.+")
# Inputs of an operator that say how large its output is, by position.
_DIMENSIONS_AT = {"Reshape": {1}, "Expand": {1}, "ConstantOfShape": {0}, "Range": {0, 1, 2}, "Resize": {3}}
# Inputs of an operator that say which part it takes or how large its output is: data there would choose a computation.
_NO_DATA_AT = {
    **{"Slice": {1, 2, 3, 4}, "Pad": {1, 3}, "Tile": {1}, "TopK": {1}, "Split": {1}, "Squeeze": {1}, "Unsqueeze": {1}},
    **{"Resize": {1, 2, 3}, "OneHot": {1}, "Trilu": {1}, "CumSum": {1}, "Reshape": {1}, "Expand": {1}, "ConstantOfShape": {0}},
    **{"Range": {0, 1, 2}},
}
_COMPUTED_AT = {"Reshape": {1}}  # a reshape keeps every number, whatever the sizes are
_TO_INTEGER = frozenset({"ArgMax", "ArgMin", "TopK", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot"})
# The only field that an attribute of each type has, by AttributeProto's numbers of the types.
_FIELDS = {1: "f", 2: "i", 3: "s", 4: "t", 6: "floats", 7: "ints", 8: "strings", 9: "tensors"}
_INTEGERS = frozenset({2, 3, 4, 5, 6, 7, 12, 13, 21, 22})  # TensorProto's numbers of integer types


def check_form(model: ModelProto) -> None:
    """Reject what makes a file more than one plain graph, and give every node its own name, in place.

    The shapes that the file claims for values between nodes are dropped: they follow from the graph.

    Raises:
        BuildError: control flow, functions, other domains, weights elsewhere, a name, attribute or number that is there twice,
            random or string operators.
    """
    graph = model.graph
    del graph.value_info[:]
    if model.functions:
        raise BuildError("the model defines functions. Inline them: onnx.inliner.inline_local_functions(model)")
    domains = [entry.domain for entry in model.opset_import]
    if sorted(set(domains) - {"", "ai.onnx"}) and {node.domain for node in graph.node} - {"", "ai.onnx"}:
        raise BuildError(f"operators of the domain {max(domains)!r} are not taken: use the operators of ONNX itself")
    if sum(domain in ("", "ai.onnx") for domain in domains) != 1:
        raise BuildError("the model must import the operators of ONNX exactly once")
    if graph.sparse_initializer:
        raise BuildError("the model holds sparse constants: store them as dense ones")
    for tensor in graph.initializer:
        _check_tensor(tensor)
    defined = [tensor.name for tensor in graph.initializer]
    constants = set(defined)
    inputs = [info.name for info in graph.input if info.name not in constants]
    for number, node in enumerate(graph.node):
        _check_node(node)
        node.name = _NOT_OF_A_NAME.sub("_", node.name) or f"{node.op_type}_{number}"
        defined += [name for name in node.output if name]
    _check_names([*inputs, *defined], graph)
    taken: set[str] = set()
    numbers: dict[str, int] = {}  # the last number that was tried, so that thousands of equal names take one pass
    for node in graph.node:
        name = node.name[:200]
        while node.name in taken:
            numbers[name] = numbers.get(name, 1) + 1
            node.name = f"{name}_{numbers[name]}"
        taken.add(node.name)


def _check_names(defined: list[str], graph: object) -> None:
    seen: set[str] = set()
    for name in defined:
        if name in seen:
            raise BuildError(f"two values have the name {name[:60]!r}: give each its own")
        seen.add(name)
    known = {info.name for info in graph.input} | {tensor.name for tensor in graph.initializer}  # type: ignore[attr-defined]
    for node in graph.node:  # type: ignore[attr-defined]
        for name in node.input:
            if name and name not in known:
                raise BuildError(f"{_called(node)} reads {name[:60]!r} before any node makes it: sort the nodes")
        known |= set(node.output)


def _check_node(node: NodeProto) -> None:
    if node.domain not in ("", "ai.onnx"):
        raise BuildError(f"{_called(node)} is of the domain {node.domain[:40]!r}: use the operators of ONNX itself")
    if node.op_type in CONTROL_FLOW or any(one.HasField("g") or one.graphs for one in node.attribute):
        raise BuildError(
            f"{_called(node)} is control flow, which can hide what runs: submit one graph without branches, and unroll loops"
        )
    if node.op_type in _RANDOM:
        raise BuildError(f"{_called(node)} draws random numbers: the same inputs must give the same answers")
    if node.op_type in _SIZE_BY_VALUE | _FOREIGN or node.op_type.startswith("Sequence"):
        raise BuildError(
            f"{_called(node)} makes outputs whose size depends on values: the size of each tensor must follow from the input shapes"
        )
    names = [one.name for one in node.attribute]
    if twice := next((name for name, count in Counter(names).items() if count > 1), None):
        raise BuildError(f"{_called(node)} has the attribute {twice[:40]!r} twice, and compilers read either of them")
    for one in node.attribute:
        if one.name == "training_mode" and one.i:
            raise BuildError(f"{_called(node)} is in training mode: export the network in eval mode")
        if one.HasField("t"):
            _check_tensor(one.t)
        fields = {field.name for field, _ in one.ListFields()} - {"name", "type", "doc_string"}
        if one.type not in _FIELDS or not fields <= {_FIELDS[one.type]}:
            raise BuildError(f"{_called(node)} has the attribute {one.name[:40]!r} in a form that compilers read differently")


def _check_tensor(tensor: TensorProto) -> None:
    if tensor.data_location == tensor.EXTERNAL or tensor.external_data:
        where = next((entry.value for entry in tensor.external_data if entry.key == "location"), "")
        raise BuildError(
            f"the weights {tensor.name[:60]!r} are in another file, {where[:60]!r}: save the model with its weights inside"
        )
    fields = [field.name for field, _ in tensor.ListFields() if field.name.endswith("_data")]
    if len(fields) > 1:
        raise BuildError(f"the weights {tensor.name[:60]!r} are there twice, as {fields[0]} and {fields[1]}: keep one")


def check_values(model: ModelProto, kinds: Mapping[str, Kind]) -> None:
    """Reject nodes in which a size or a remaining constant chooses what is computed.

    Args:
        model: the model with folded constants.
        kinds: origin of each value, see `constant_folding.fold`.

    Raises:
        BuildError: there is such a node.
    """
    from onnx import numpy_helper

    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer if _is_small(tensor)}
    shapes = inferred_shapes(model)
    integers: set[str] = set()
    for node in model.graph.node:
        found = [kinds[name] if name else None for name in node.input]
        if node.op_type not in ("Shape", "Size"):
            _check_sizes(node, found)
        if any(found[place] is Kind.DATA for place in _NO_DATA_AT.get(node.op_type, ()) if place < len(found)):
            raise BuildError(
                f"{_called(node)} takes a part or makes a size that depends on values: write the numbers into the graph"
            )
        if node.op_type in _COMPARING and Kind.DATA not in found:
            raise BuildError(f"{_called(node)} compares {_words(found)}, not data: remove the branch that is never taken")
        if node.op_type == "Where":
            _check_where(node, found, arrays)
        if node.op_type == "Slice" and found[0] is Kind.DATA:
            _check_slice(node, shapes.get(node.input[0]), arrays)
        if Kind.DATA in found or Kind.QUANTIZED in found:
            _check_integers(node, integers)
        _check_constants(node, arrays)
    for name, array in arrays.items():
        if array.dtype.kind == "f" and np.isnan(array).any():
            raise BuildError(f"the constant {name[:60]!r} holds NaN: compilers treat it differently")


def _check_sizes(node: NodeProto, found: list[Kind | None]) -> None:
    sizes = {place for place, kind in enumerate(found) if kind in (Kind.DIMENSION, Kind.COMPUTED_SIZE)}
    if not sizes:
        return
    kind = Kind.COMPUTED_SIZE if Kind.COMPUTED_SIZE in found else Kind.DIMENSION
    if node.op_type in _DIMENSIONS_AT:
        allowed = sizes <= (
            _COMPUTED_AT.get(node.op_type, set()) if kind is Kind.COMPUTED_SIZE else _DIMENSIONS_AT[node.op_type]
        )
        if node.op_type == "Reshape" and 0 in sizes:
            allowed = Kind.DATA not in found
    elif node.op_type == "Slice" and found[0] is Kind.CONSTANT:  # the first rows of a table, such as positions
        allowed = sizes == {2} and kind is Kind.DIMENSION
    elif node.op_type == "Gather" and found[0] is Kind.CONSTANT:
        allowed = kind is Kind.DIMENSION
    elif node.op_type == "Cast":
        allowed = any(one.name == "to" and one.i in (6, 7) for one in node.attribute)  # int32 and int64
    else:
        allowed = node.op_type in REARRANGING | _ARITHMETIC and Kind.DATA not in found and Kind.QUANTIZED not in found
    if not allowed:
        raise BuildError(
            f"{_called(node)} reads {kind.value}. Sizes may shape tensors (Reshape, Expand), and may not take part in the computation "
            "or choose a part of it: write the number into the graph"
        )


def _check_where(node: NodeProto, found: list[Kind | None], arrays: Mapping[str, np.ndarray]) -> None:
    if found[0] is Kind.DATA:
        return
    condition = arrays.get(node.input[0])
    if condition is None or condition.all() or not condition.any() or Kind.CONSTANT not in found[1:]:
        raise BuildError(
            f"{_called(node)} has a condition that is known in advance: keep the part that is used, leave out the other"
        )


def _check_slice(node: NodeProto, shape: list[int | None] | None, arrays: Mapping[str, np.ndarray]) -> None:
    """A part of a dynamic dimension can be empty, and what follows it is then another network for some sizes."""
    axes = arrays.get(node.input[3]) if len(node.input) > 3 and node.input[3] else None
    starts = arrays.get(node.input[1])
    if starts is None:
        raise BuildError(f"{_called(node)} takes a part whose bounds are computed: write them into the graph")
    places = range(len(starts)) if axes is None else [int(axis) for axis in axes]
    if shape is None or any(shape[place] is None for place in places):
        raise BuildError(f"{_called(node)} takes a part of a dynamic dimension, such as the batch: take all of it")


def _check_integers(node: NodeProto, integers: set[str]) -> None:
    """Integers made from data go to dequantization or integer products, not into arithmetic that wraps around somewhere."""
    to_integer = node.op_type == "Cast" and any(one.name == "to" and one.i in _INTEGERS for one in node.attribute)
    if to_integer or node.op_type in _TO_INTEGER:
        raise BuildError(
            f"{_called(node)} turns data into integers, which overflow differently in each compiler: compute in float"
        )
    if node.op_type == "QuantizeLinear":
        integers.add(node.output[0])
    elif set(node.input) & integers:
        if node.op_type in REARRANGING | {"Transpose", "Flatten"} - {"Cast"}:
            integers.update(node.output)
        elif node.op_type not in QUANTIZATION:
            raise BuildError(f"{_called(node)} computes with quantized integers: put a DequantizeLinear before it")


def _check_constants(node: NodeProto, arrays: Mapping[str, np.ndarray]) -> None:
    if node.op_type == "Dropout" and len(node.input) > 2 and (node.input[2] not in arrays or arrays[node.input[2]].any()):
        raise BuildError(f"{_called(node)} is in training mode: export the network in eval mode")
    if node.op_type == "Clip":
        low, high = (arrays.get(node.input[place]) if len(node.input) > place else None for place in (1, 2))
        if low is not None and high is not None and (low > high).any():
            raise BuildError(f"{_called(node)} has a lower bound above its upper one, which compilers read differently")


def _is_small(tensor: TensorProto) -> bool:
    return int(np.prod(tensor.dims, dtype=np.float64)) <= 1 << 20


def _words(found: list[Kind | None]) -> str:
    return " and ".join(dict.fromkeys(kind.value for kind in found if kind))


def _called(node: NodeProto) -> str:
    name = node.name or (node.output[0] if node.output else "")
    return f"node {name[:60]!r} ({node.op_type[:40]})"
