"""Exercises of lecture 9: RoPE, sectors, indices, wide loads, supported formats, and the node of a plugin."""

from __future__ import annotations

import numpy as np

from course_lib.exercises.comparing import shown
from course_lib.exercises.exercise import Answer, Case, NotYet

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
    "9.2": (
        (_SHIFTED, 4),
        (_NEIGHBORS, 4),
        ([0, 256], 2),
        ([24], 16),
    )
}
CASES = {
    "9.1": (
        Case(
            (np.array([1.0, 2.0, 3.0, 4.0]), 3),
            np.array([-1.41335252, 1.87911807, -2.82885748, 4.05819114]),
            {
                "You paired neighbors, 0 with 1. This exercise uses halves: 0 with 2, and 1 with 3.": np.array(
                    [-1.27223251, -1.83886499, 2.8786681, 4.08818664]
                ),
                "The exponent is -2 i / size. Yours rotates pair 1 too fast.": np.array(
                    [-1.41335252, 0.72859215, -2.82885748, 4.41238637]
                ),
                "The exponent is -2 i / size, with the size of the head, not of one half.": np.array(
                    [-1.41335252, 1.99879991, -2.82885748, 4.00059982]
                ),
                "You rotated in the other direction: `y_a` has the minus sign, `y_b` the plus sign.": np.array(
                    [-0.56663247, 2.11908207, -3.1110975, 3.93820913]
                ),
                "You overwrote `a` before you computed `y_b` with it. Both lines use the numbers of `x`.": np.array(
                    [-1.41335252, 1.87911807, -3.16942981, 4.05456522]
                ),
            },
        ),
        Case(
            (np.arange(6.0), 0),
            np.arange(6.0),
            {"Position 0 has the angle 0 and changes nothing: do not add 1.": np.ones(6)},
        ),
    )
}
