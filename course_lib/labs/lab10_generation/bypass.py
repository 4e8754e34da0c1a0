"""Whether anything but the fused attentions reads a cache: the nodes that make up an attention can have any names and operators."""

from __future__ import annotations

import json
from collections.abc import Collection

from course_lib.engines.worker.parent import Launcher
from course_lib.errors import BuildError, EngineError
from course_lib.labs.framework.isolation import transform, transformed
from course_lib.labs.lab10_generation.network import CACHES


def bypassed(
    model: bytes, fused: Collection[str], *, launcher: Launcher | None = None, time_limit_s: float = 60.0
) -> tuple[str, ...]:
    """The caches that reach the logits on a path without a fused attention.

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
    found = []
    for cache in CACHES:
        seen, left = set[str](), [f"past_{cache}", f"present_{cache}"]
        while left:
            tensor = left.pop()
            if tensor in seen:
                continue
            seen.add(tensor)
            for number in readers.get(tensor, ()):
                if graph.node[number].name not in blocked:
                    left += graph.node[number].output
        if "logits" in seen:
            found.append(cache)
    return json.dumps(found).encode()
