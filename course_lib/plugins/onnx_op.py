"""RoPE as an ONNX operator: a node in the course's domain that TensorRT's parser maps to the plugin, and the same in standard operators.

The parser looks up an unknown operator in TensorRT's plugin registry. It uses the node's type as the plugin's name, and the node's
attributes ``plugin_version`` and ``plugin_namespace``. Since TensorRT 10.10 it also reads the namespace from the node's domain; before
that the domain played no part, so the attribute is always written. It prefers its own importers, so a plugin must not have the name
of a standard operator, such as `RotaryEmbedding` of opset 23.

Source: the open-source ONNX parser of TensorRT, importer of plugins (FallbackPluginImporter); TensorRT's changelog, 10.10.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

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
    heads: int = 8,
    head_size: int = 64,
    *,
    max_sequence: int = 2048,
    dtype: str = "float32",
    interleaved: bool = False,
    base: float = 10000.0,
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
    tables = zip(("cos", "sin"), rope_tables(max_sequence, head_size, base=base), strict=True)
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


def expand_rope(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of the model with each custom node replaced by standard operators, for a machine without the plugin.

    It rounds as the kernel does: arithmetic in float32, one rounding at the end.
    """
    import onnx
    from onnx.shape_inference import infer_shapes

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    while (index := next((i for i, node in enumerate(copy.graph.node) if _is_custom(node)), None)) is not None:
        nodes = list(copy.graph.node)
        known = infer_shapes(copy).graph  # everything before the node is standard by now, so its input's type is known
        types = {value.name: value.type.tensor_type.elem_type for value in (*known.input, *known.value_info)}
        del copy.graph.node[:]
        copy.graph.node.extend([*nodes[:index], *_expanded(nodes[index], types[nodes[index].input[0]]), *nodes[index + 1 :]])
    kept = [entry for entry in copy.opset_import if entry.domain != DOMAIN]
    del copy.opset_import[:]
    copy.opset_import.extend(kept)
    return copy


def _is_custom(node: onnx.NodeProto) -> bool:
    return bool((node.domain, node.op_type) == (DOMAIN, NAME))


def _expanded(node: onnx.NodeProto, dtype: int) -> list[onnx.NodeProto]:
    """The formula at the top of rope/rope.cu, node by node; `dtype` is that of x."""
    from onnx import TensorProto, helper, numpy_helper

    x, cos, sin = node.input
    interleaved = any(attribute.name == "interleaved" and attribute.i for attribute in node.attribute)
    nodes: list[onnx.NodeProto] = []

    def add(operator: str, *inputs: str, outputs: int = 1, **attributes: Any) -> list[str]:
        label = f"{node.name or NAME}/{operator}_{len(nodes)}"
        names = [f"{label}_{i}" for i in range(outputs)]
        nodes.append(helper.make_node(operator, list(inputs), names, name=label, **attributes))
        return names

    def constant(values: list[int]) -> str:
        return add("Constant", value=numpy_helper.from_array(np.array(values, np.int64)))[0]

    (wide,) = add("Cast", x, to=TensorProto.FLOAT)
    (length,) = add("Shape", x, start=1, end=2)
    c, s = (
        add("Unsqueeze", *add("Slice", table, constant([0]), length, constant([0])), constant([1]))[0] for table in (cos, sin)
    )
    if interleaved:  # (..., head size) as (..., pairs, 2): a pair's numbers stand next to each other
        (paired,) = add("Reshape", wide, constant([0, 0, 0, -1, 2]))
        a, b = (add("Squeeze", part, constant([4]))[0] for part in add("Split", paired, outputs=2, axis=4))
    else:
        a, b = add("Split", wide, outputs=2, axis=3)
    (y_a,) = add("Sub", *add("Mul", a, c), *add("Mul", b, s))
    (y_b,) = add("Add", *add("Mul", b, c), *add("Mul", a, s))
    if interleaved:
        columns = [add("Unsqueeze", part, constant([4]))[0] for part in (y_a, y_b)]
        (whole,) = add("Reshape", *add("Concat", *columns, axis=4), *add("Shape", x))
    else:
        (whole,) = add("Concat", y_a, y_b, axis=3)
    nodes.append(helper.make_node("Cast", [whole], list(node.output), name=f"{node.name or NAME}/Cast", to=dtype))
    return nodes
