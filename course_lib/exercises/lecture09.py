"""Exercises of lecture 9: RoPE, sectors, indices, wide loads, supported formats, and the node of a plugin."""

from __future__ import annotations

import numpy as np

from course_lib.exercises.comparing import shown
from course_lib.exercises.exercise import Answer, Case, Exercise, NotYet

_NEIGHBORS = [4 * thread for thread in range(32)]
_SHIFTED = [4 * thread + 4 for thread in range(32)]
_HALF, _TABLE = ("float16", "LINEAR"), ("float32", "LINEAR")

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

EXERCISES = (
    Exercise(
        id="9.1",
        title="A reference for one head",
        minutes=10,
        difficulty=1,
        importance=2,
        call="rotate(x, position)",
        hint="Compute the angle of each pair first, then both lines of the formula. Nothing else changes.",
        cases=(
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
        ),
    ),
    Exercise(
        id="9.2",
        title="The sectors of a request",
        minutes=8,
        difficulty=1,
        importance=2,
        call="sectors(first_bytes, size)",
        hint="List the numbers of the bytes that each thread needs. In which sector is byte 31, and in which is byte 32?",
        cases=(
            Case(
                (_SHIFTED, 4),
                5,
                {
                    "That is the number of bytes divided by 32. These loads begin at byte 4, so they touch one sector more.": 4,
                    "You counted a sector once for each thread. Threads of a request share a sector.": 32,
                    "That is the number of bytes. A sector has 32 of them.": 160,
                },
                shown="sectors([4, 8, 12, ..., 128], 4)",
            ),
            Case(
                (_NEIGHBORS, 4),
                4,
                {"Your last byte is too large by one: a load of 4 bytes from byte 124 ends with byte 127.": 5},
                shown="sectors([0, 4, 8, ..., 124], 4)",
            ),
            Case(
                ([0, 256], 2),
                2,
                {"You counted all sectors between the first and the last. Those without a needed byte are not fetched.": 9},
            ),
            Case(([24], 16), 2, {"This load begins in sector 0 and ends in sector 1: look at its last byte, too.": 1}),
        ),
    ),
    Exercise(
        id="9.3",
        title="From the number of a thread to its numbers",
        minutes=12,
        difficulty=2,
        importance=3,
        call="element(thread, sequence, heads, head_size)",
        hint="Follow thread 300 with a pencil: which pair of which head, of which position, of which sample?",
        cases=(
            Case(
                (300, 7, 8, 64),
                (588, 620, 1),
                {
                    "The row of the tables is the position. You did not divide by the number of heads.": (588, 620, 9),
                    "Each head has 64 numbers in memory and 32 pairs. The start of a head is a multiple of `head_size`.": (
                        300,
                        332,
                        1,
                    ),
                    "The second number of a pair is half a head further, not next to the first.": (588, 589, 1),
                    "The second number of a pair is half a head further, not a whole head.": (588, 652, 1),
                    "A position changes more slowly than a head: divide by `heads` first.": (588, 620, 2),
                },
            ),
            Case(
                (2092, 7, 8, 64),
                (4172, 4204, 1),
                {
                    "This thread belongs to the second sample, and positions start again at 0 there: use `% sequence`.": (
                        4172,
                        4204,
                        8,
                    )
                },
            ),
        ),
    ),
    Exercise(
        id="9.4",
        title="When is a wide load allowed?",
        minutes=8,
        difficulty=2,
        importance=2,
        call="numbers_per_load(addresses, head_size, bytes_each)",
        hint="Check both conditions of the list above: each address, and the bytes of half a head.",
        cases=(
            Case(
                ([4096, 8192], 128, 2),
                8,
                {
                    "That is the number of bytes. Return numbers: 16 bytes hold 8 of 2 bytes each.": 16,
                    "All addresses and all rows are multiples of 16 here. Use the wide load.": 1,
                },
            ),
            Case(([4096, 8192], 72, 4), 4, {"The numbers of this call have 4 bytes each, so 16 bytes hold 4.": 8}),
            Case(
                ([4096, 8192], 72, 2),
                1,
                {
                    "A head has 144 bytes, a multiple of 16. Its second half begins after 72 bytes, which is not a multiple of 16.": 8,
                    "The course has two kernels, for 16 bytes and for one number. It does not have a kernel for a width between them.": 4,
                },
            ),
            Case(([4096, 8200], 128, 2), 1, {"The second address is not a multiple of 16. Every pointer must be.": 8}),
            Case(
                ([4112, 8192], 128, 2),
                8,
                {"4112 is a multiple of 16. A slice that starts at the 9th FP16 number of a tensor is still aligned.": 1},
            ),
        ),
    ),
    Exercise(
        id="9.5",
        title="Supported formats",
        minutes=10,
        difficulty=2,
        importance=3,
        call="supports(pos, tensors)",
        hint="Check the layout first, then whether the type is allowed at this position.",
        cases=(
            Case(
                (3, [_HALF, _TABLE, _TABLE, _HALF]),
                True,
                {"x and y are FP16, and both tables FP32: y must have the type of x, not of the tables.": False},
            ),
            Case(
                (1, [_HALF, _TABLE, _TABLE, _HALF]),
                True,
                {"The type of a table does not depend on x: FP32 tables are right for x in FP16.": False},
            ),
            Case(
                (0, [_HALF, ("int8", "HWC8"), ("int8", "HWC8"), ("int8", "HWC8")]),
                True,
                {"The question is about x only. Tensors after `pos` are not decided yet: do not look at them.": False},
            ),
            Case(
                (0, [("int8", "LINEAR"), _TABLE, _TABLE, _HALF]),
                False,
                {"The kernel rotates FP32, FP16 and BF16. It would read INT8 wrongly, without an error.": True},
            ),
            Case(
                (1, [_HALF, _HALF, _TABLE, _HALF]),
                False,
                {"The tables stay FP32 in this plugin, even if x is FP16.": True},
            ),
            Case(
                (2, [_HALF, _TABLE, _HALF, _HALF]),
                False,
                {"You checked `cos`. `sin` is a table, too.": True},
            ),
            Case(
                (3, [_HALF, _TABLE, _TABLE, ("float32", "LINEAR")]),
                False,
                {"y has the type of x, which is FP16 here. FP32 is only right if x is FP32.": True},
            ),
            Case(
                (3, [_HALF, _TABLE, _TABLE, ("float16", "HWC8")]),
                False,
                {"You checked the type of y. Its layout must be `LINEAR`, too.": True},
            ),
            Case(
                (0, [("bfloat16", "LINEAR"), _TABLE, _TABLE, _HALF]),
                True,
                {"BF16 is the third type that the kernel rotates.": False},
            ),
        ),
    ),
    Exercise(
        id="9.6",
        title="The node of a plugin",
        minutes=6,
        difficulty=1,
        importance=2,
        call="plugin_node(scale)",
        hint="Pass the type, the inputs, the outputs, the domain, and the attributes to `helper.make_node`.",
        examine=_found_by_the_parser,
    ),
)
