"""Exercises of lecture 2: why a graph was rejected, the range of a profile, and a build without the course's wrapper."""

from __future__ import annotations

import re
from typing import Any

from course_lib.exercises.comparing import shown
from course_lib.exercises.exercise import Answer, NotYet

_FITS = "g (float[N,4] x) => (float[N,4] y) { a = Abs(x)  y = Relu(a) }"
_ONE_BAD = "g (float[N,3,3] x) => (float[N] y) { a = Relu(x)  b = Det(a)  y = Relu(b) }"
_TWO_BAD = "g (float[N,3,3] x) => (float[N] y, float[N] z) { a = Det(x)  y = Relu(a)  z = Det(x) }"


def _onnx(text: str) -> bytes:
    """A model from ONNX's text form; each node is named by its operator and place, such as ``/Det_1``."""
    from onnx import parser

    model = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 17]> {text}')
    for place, node in enumerate(model.graph.node):
        node.name = f"/{node.op_type}_{place}"
    return bytes(model.SerializeToString())


def _examine_rejections(called: Answer) -> None:
    for text, expected in ((_TWO_BAD, [("Det", "/Det_0"), ("Det", "/Det_2")]), (_ONE_BAD, [("Det", "/Det_1")]), (_FITS, [])):
        found = called(_onnx(text))
        what = f"for a graph with {len(expected)} unsupported nodes, `rejected_nodes` returned {shown(found)}, expected {expected}."
        if isinstance(found, bool):
            raise NotYet(
                f"{what} The result only says whether the parser succeeded: ask it for its errors, `parser.num_errors`."
            )
        if not isinstance(found, (list, tuple)):
            raise NotYet(f"{what} Return a list with a pair for each error; it is empty if there are none.")
        pairs = [tuple(pair) if isinstance(pair, (list, tuple)) else pair for pair in found]
        if pairs != expected:
            raise NotYet(f"{what} {_rejection_hint(pairs, expected)}")


def _rejection_hint(pairs: list[Any], expected: list[tuple[str, str]]) -> str:
    if len(pairs) < len(expected):
        return "The parser reports one error for each node. Read all of them: `parser.num_errors` and `parser.get_error(i)`."
    if any("false" in str(pair) or "ErrorCode" in str(pair) for pair in pairs):
        return "The text of this error says only `false`. Take the operator and the node: `error.node_operator()`, `error.node_name()`."
    if sorted(map(str, pairs)) == sorted(map(str, ((name, operator) for operator, name in expected))):
        return "The operator comes first, then the name of the node."
    if not expected:
        return "The parser accepts this graph, so it has no errors: start each call with a new network and a new parser."
    return "Each pair has two texts: the error's operator and the name of its node."


_INFO = re.compile(rb"accelerators=\{([^}]*)\}|src=\"(\d+)i64\"|\[ONNX Layer: ([^\]]*)\]")


def _examine_build(called: Answer) -> None:
    for batches in ((3, 11, 37), (5, 13, 53)):  # numbers that the compiler has no other use for
        _examine_plan(called, batches)


def _examine_plan(called: Answer, batches: tuple[int, int, int]) -> None:
    """Call the answer for a range of batches, and read from the plan what it was built for.

    The compiler writes targets, the limits of the batch and the nodes as text into a plan (TensorRT for RTX 1.7.1).
    """
    found = called(_onnx(_FITS), "x", *((batch, 4) for batch in batches))
    if not isinstance(found, (bytes, bytearray)):
        raise NotYet(
            f"`build_plan` returned an object of the type {type(found).__name__}, expected bytes. "
            "Copy the builder's memory with `bytes(...)`, so that the plan outlives the builder."
        )
    plan = bytes(found)
    targets = b" ".join(one for one, _, _ in _INFO.findall(plan)).split()
    limits = {int(one) for _, one, _ in _INFO.findall(plan) if one}
    nodes = {one.decode() for _, _, one in _INFO.findall(plan) if one}
    if not targets:
        raise NotYet(
            f"`build_plan` returned {len(plan)} bytes that are not a plan. Return what `build_serialized_network` returned."
        )
    if nodes != {"/Abs_0", "/Relu_1"}:
        raise NotYet(
            f"the plan computes {sorted(nodes)}, expected /Abs_0 and /Relu_1. Parse `onnx_bytes` into the network that you build."
        )
    if targets != [b"sm89"]:
        raise NotYet(
            f"the plan is for {b', '.join(targets).decode()}, expected sm89. "
            "Set the config's number of compute capabilities to 1, and the first one to `trt.ComputeCapability.SM89`."
        )
    lowest, best, largest = batches
    given = f"the plan should accept batches from {lowest} to {largest}, tuned for {best}, but it has another range."
    if {lowest, largest} <= limits:
        return
    if largest not in limits and lowest not in limits:
        raise NotYet(f"{given} Use the shapes that the function receives, and pass the smallest, the best and the largest one.")
    if largest not in limits:
        raise NotYet(f"{given} It rejects {largest}: the last shape of `profile.set_shape` is the largest one.")
    raise NotYet(f"{given} It rejects {lowest}: the first shape of `profile.set_shape`, after the name, is the smallest one.")


EXAMINATIONS = {"2.1": _examine_rejections, "2.3": _examine_build}
