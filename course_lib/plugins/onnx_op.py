"""RoPE as an ONNX operator: a node in the course's domain that TensorRT's parser maps to the plugin, and the same in standard operators.

The parser looks up an unknown operator in TensorRT's plugin registry. It uses the node's type as the plugin's name, and the node's
attributes ``plugin_version`` and ``plugin_namespace``. Since TensorRT 10.10 it also reads the namespace from the node's domain; before
that the domain played no part, so the attribute is always written. It prefers its own importers, so a plugin must not have the name
of a standard operator, such as `RotaryEmbedding` of opset 23.

Source: the open-source ONNX parser of TensorRT, importer of plugins (FallbackPluginImporter); TensorRT's changelog, 10.10.0.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from course_lib.plugins.python_plugin import NAME, NAMESPACE, VERSION
from course_lib.plugins.reference import rope_tables

if TYPE_CHECKING:
    import onnx

DOMAIN = "course"
OPSET = 17  # the newest that TensorRT 8.6 reads


def rope_node(x: str, cos: str, sin: str, y: str, *, interleaved: bool = False, name: str = "rope") -> onnx.NodeProto:
    """The custom node: ``y`` is ``x`` rotated.

    Args:
        x, y: tensors of shape ``(batch, sequence, heads, head_size)``.
        cos, sin: float32 tensors of shape ``(rows, head_size / 2)`` with at least `sequence` rows.
        interleaved: as in `reference.rope`.
    """
    from onnx import helper

    found = {"plugin_version": VERSION, "plugin_namespace": NAMESPACE}
    return helper.make_node(NAME, [x, cos, sin], [y], name=name, domain=DOMAIN, interleaved=int(interleaved), **found)


def rope_model(
    heads: int = 8, head_size: int = 64, *, max_sequence: int = 2048, dtype: str = "float32", interleaved: bool = False
) -> onnx.ModelProto:
    """A model of one custom node between input ``x`` and output ``y``, batch and sequence dynamic, the tables stored in it.

    Args:
        max_sequence: number of rows of the tables, which limits the length of a sequence.
        dtype: ``"float32"``, ``"float16"`` or ``"bfloat16"``.

    Raises:
        ValueError: another dtype, or sizes that `rope_tables` rejects.
    """
    from onnx import TensorProto, helper, numpy_helper

    types = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16}
    if dtype not in types:
        raise ValueError(f"a model rotates {', '.join(types)}, not {dtype}")
    tables = zip(("cos", "sin"), rope_tables(max_sequence, head_size), strict=True)
    x, y = (helper.make_tensor_value_info(name, types[dtype], ["batch", "sequence", heads, head_size]) for name in "xy")
    graph = helper.make_graph(
        [rope_node("x", "cos", "sin", "y", interleaved=interleaved)],
        "rope",
        [x],
        [y],
        [numpy_helper.from_array(table, name) for name, table in tables],
    )
    versions = [helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=versions, ir_version=8)


# The formula at the top of rope/rope.cu. Numbers of a pair are half a head apart, or next to each other: (..., pairs, 2).
_FORMULA = """
<domain: "course", opset_import: ["" : %d]>
%s (x, cos, sin) => (y) {
    zero = Constant<value = int64[1] {0}>()
    one = Constant<value = int64[1] {1}>()
    four = Constant<value = int64[1] {4}>()
    length = Shape<start = 1, end = 2>(x)
    cos_rows = Slice(cos, zero, length, zero)
    sin_rows = Slice(sin, zero, length, zero)
    c = Unsqueeze(cos_rows, one)
    s = Unsqueeze(sin_rows, one)
    wide = Cast<to = 1>(x)
    %s
    a_c = Mul(a, c)
    b_s = Mul(b, s)
    b_c = Mul(b, c)
    a_s = Mul(a, s)
    y_a = Sub(a_c, b_s)
    y_b = Add(b_c, a_s)
    %s
    y = CastLike(whole, x)
}"""
_SPLIT_COUNTS = 18  # the operator set from which on Split is told its number of outputs
_HALVES = "a, b = Split<axis = 3>(wide)", "whole = Concat<axis = 3>(y_a, y_b)"
_NEIGHBORS = (
    "pairs = Constant<value = int64[5] {0, 0, 0, -1, 2}>() paired = Reshape(wide, pairs) "
    "a_1, b_1 = Split<axis = 4>(paired) a = Squeeze(a_1, four) b = Squeeze(b_1, four)",
    "y_a1 = Unsqueeze(y_a, four) y_b1 = Unsqueeze(y_b, four) joined = Concat<axis = 4>(y_a1, y_b1) "
    "shape = Shape(x) whole = Reshape(joined, shape)",
)


def expand_rope(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of the model with each custom node replaced by standard operators, for a machine without the plugin.

    It rounds as the kernel does: arithmetic in float32, one rounding at the end. Functions of the model's own stay.
    """
    import onnx
    from onnx import inliner, parser

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for node in (one for one in copy.graph.node if (one.domain, one.op_type) == (DOMAIN, NAME)):
        if any(attribute.name == "interleaved" and attribute.i for attribute in node.attribute):
            node.op_type = f"{NAME}Interleaved"
        del node.attribute[:]
    forms = {NAME: _HALVES, f"{NAME}Interleaved": _NEIGHBORS}
    version = next(entry.version for entry in copy.opset_import if entry.domain in ("", "ai.onnx"))
    for name, form in forms.items():  # a function is inlined in a model of its own opset only
        text = _FORMULA % (version, name, *form)
        if version >= _SPLIT_COUNTS:
            text = re.sub(r"Split<axis = (\d)>", r"Split<axis = \1, num_outputs = 2>", text)
        copy.functions.append(parser.parse_function(text))
    expanded = inliner.inline_selected_functions(copy, [(DOMAIN, name) for name in forms])
    kept = [entry for entry in expanded.opset_import if entry.domain != DOMAIN]
    del expanded.opset_import[:]
    expanded.opset_import.extend(kept)
    return expanded
