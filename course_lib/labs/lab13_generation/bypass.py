"""Whether anything but the fused attentions computes with a cache: the nodes that make up an attention can have any names and operators."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from course_lib.engines.worker.parent import Launcher
from course_lib.errors import BuildError, EngineError
from course_lib.labs.framework.isolation import transform, transformed
from course_lib.labs.lab13_generation.network import CACHES

# What may happen to a cache before a fused attention reads it: new entries are written, numbers are moved or compared. The products of an
# attention need another operator, or a product with something that depends on the tokens.
_MOVES = frozenset({
    *("Cast", "CastLike", "Concat", "Expand", "Flatten", "Gather", "Identity", "Pad", "Reshape", "Slice", "Split", "Squeeze"),
    *("Tile", "Transpose", "Unsqueeze", "Where", "Abs", "And", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Neg"),
    *("Not", "Or", "ReduceMax", "ReduceMin", "Mul", "Div"),
})  # fmt: skip
_WRITES = frozenset({"Add", "ScatterElements", "ScatterND", "Sub", "TensorScatter"})


def bypassed(
    model: bytes, fused: Collection[str], *, launcher: Launcher | None = None, time_limit_s: float = 60.0
) -> tuple[str, ...]:
    """The caches that reach the logits on a path without a fused attention, or after products of their entries outside of one.

    Args:
        model: a serialized model with unique node names, as the compiler read it.
        fused: names of the nodes that the compiler put into fused attentions.

    Raises:
        BuildError: the graph cannot be read.
    """
    question = json.dumps(sorted(fused)).encode() + b"\n" + model
    try:
        found = json.loads(transformed(__name__, question, launcher=launcher, time_limit_s=time_limit_s))
        return tuple(name for name in CACHES if name in found)
    except (EngineError, ValueError, TypeError, RecursionError):
        raise BuildError("the paths of decoder.onnx cannot be followed: write it with GraphWriter.write") from None


def main() -> None:
    """Entry point of the child process."""
    transform(_bypassed)


def _bypassed(question: bytes) -> bytes:
    import onnx

    names, _, data = question.partition(b"\n")
    fused, graph = set(json.loads(names)), onnx.load_model_from_string(data).graph
    every = [node.name for node in graph.node]
    # A name that two nodes share does not say which of them is in the kernel.
    blocked = {name for name in fused if every.count(name) == 1}
    readers: dict[str, list[int]] = {}
    for number, node in enumerate(graph.node):
        for tensor in node.input:
            readers.setdefault(tensor, []).append(number)
    computed = {"tokens", *(f"past_{cache}" for cache in CACHES)}
    for node in graph.node:  # sorted, as a graph must be
        if node.op_type != "Shape" and computed.intersection(node.input):
            computed.update(node.output)
    found = []
    for cache in CACHES:
        # A path that has left the way into a fused attention goes on through all nodes.
        left = [(f"past_{cache}", False), (f"present_{cache}", False)]
        seen = set[tuple[str, bool]]()
        while left:
            tensor, used = left.pop()
            if (tensor, used) in seen:
                continue
            seen.add((tensor, used))
            for number in readers.get(tensor, ()):
                node = graph.node[number]
                if used or node.name not in blocked:
                    left += [(name, used or not _enters(node, tensor, computed)) for name in node.output]
        if {("logits", True), ("logits", False)} & seen:
            found.append(cache)
    return json.dumps(found).encode()


def _enters(node: Any, tensor: str, computed: Collection[str]) -> bool:
    """Whether a node only moves or compares a cache's entries, or writes others beside them."""
    if node.op_type in _WRITES:
        return not any(one.name == "reduction" and one.s not in (b"", b"none") for one in node.attribute)
    if node.op_type not in _MOVES:
        return False
    if node.op_type == "Concat":
        return True
    others = list(node.input)
    others.remove(tensor)
    if node.op_type == "Where" and tensor != node.input[0]:
        others = [node.input[0]]
    return not any(name in computed for name in others)
