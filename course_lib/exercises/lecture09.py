"""Exercises of lecture 9: RoPE, sectors, indices, wide loads, supported formats, and the node of a plugin."""

from __future__ import annotations

import numpy as np

from course_lib.exercises.comparing import shown
from course_lib.exercises.exercise import Answer, NotYet

_NEIGHBORS = [4 * thread for thread in range(32)]
_SHIFTED = [4 * thread + 4 for thread in range(32)]

_ATTRIBUTES = {"plugin_version": b"1", "plugin_namespace": b"course", "scale": 0.5}


def _found_by_the_parser(plugin_node: Answer) -> None:
    """Compares what identifies a plugin with what the contract says. TensorRT's parser would report one message for all of it."""
    from onnx import NodeProto, helper

    call = "plugin_node(0.5)"
    node = plugin_node(0.5)
    if not isinstance(node, NodeProto):
        raise NotYet(f"`{call}` returned {shown(node)}, expected a NodeProto. `helper.make_node` makes one.")
    if (node.op_type, node.domain) != ("ScaledAdd", "course"):
        raise NotYet(
            f"The node has the type {node.op_type!r} and the domain {node.domain!r}, expected 'ScaledAdd' and 'course'. "
            "The type is the plugin's name, and the domain is a keyword of `make_node`."
        )
    if (list(node.input), list(node.output)) != (["x", "r"], ["y"]):
        raise NotYet(
            f"The node reads {list(node.input)} and writes {list(node.output)}, expected ['x', 'r'] and ['y']. "
            "Their order is the order in which `enqueue` receives them."
        )
    found = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    for name, expected in _ATTRIBUTES.items():
        if type(found.get(name)) is not type(expected) or found[name] != expected:
            raise NotYet(f"The attribute `{name}` is {found.get(name)!r}, expected {expected!r}. {_ATTRIBUTE_HINTS[name]}")
    if helper.get_attribute_value(plugin_node(2.0).attribute[list(found).index("scale")]) != 2.0:
        raise NotYet("`plugin_node(2.0)` does not have the `scale` 2.0. Use the parameter.")


_ATTRIBUTE_HINTS = {
    "plugin_version": "The version is a text, and it must be that of the creator.",
    "plugin_namespace": "Without the namespace, a parser before TensorRT 10.10 looks for the plugin in the empty one.",
    "scale": "This attribute becomes the field of the plugin, a number in floating point.",
}

EXAMINATIONS = {"9.6": _found_by_the_parser}
ARGUMENTS = {
    "9.1": (
        (np.array([1.0, 2.0, 3.0, 4.0]), 3),
        (np.arange(6.0), 0),
    ),
    "9.2": (
        (_SHIFTED, 4),
        (_NEIGHBORS, 4),
        ([0, 256], 2),
        ([24], 16),
    ),
}
