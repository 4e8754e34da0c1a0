"""Which operators a hand-in's model holds, read in a process of its own: reading a stranger's file is not the judge's work."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import course_lib
from course_lib.engines.worker import Launcher
from course_lib.errors import BuildError, EngineError
from course_lib.labs.confined import ask

if TYPE_CHECKING:
    from onnx import NodeProto

CONTROL_FLOW = frozenset({"If", "Loop", "Scan", "SequenceMap"})

_LIBRARY = str(Path(course_lib.__file__).resolve().parent.parent)
_CHILD = "import sys; sys.path.insert(0, sys.argv[1]); from course_lib.labs.operators import main; main()"
_MOST_BYTES = 1 << 20


def operators(model: bytes, *, launcher: Launcher | None = None, time_limit_s: float = 60.0) -> frozenset[str]:
    """Types of all operators of a serialized model, those inside control flow and functions included.

    A plan's `LayerTable.operators` has one entry a name and the outermost graph only, so a name used twice can hide one.

    Raises:
        BuildError: the bytes are no ONNX model, or reading them took too long or ended the process.
    """
    command = [sys.executable, "-I", "-c", _CHILD, _LIBRARY]
    try:
        answer = json.loads(ask(command, model, launcher=launcher, time_limit_s=time_limit_s, max_bytes=_MOST_BYTES))
    except (EngineError, ValueError, RecursionError):
        raise BuildError("the file is not an ONNX model, or only a part of one") from None
    return frozenset(map(str, answer)) if isinstance(answer, list) else frozenset()


def main() -> None:
    """The child's end: a model on standard input, the list of its operators on standard output."""
    import onnx

    model = onnx.load_model_from_string(sys.stdin.buffer.read())
    found = set(_types(model.graph.node))
    for function in model.functions:
        found.update(_types(function.node))
    json.dump(sorted(found), sys.stdout)


def _types(nodes: Iterable[NodeProto]) -> Iterator[str]:
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        yield node.op_type
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                waiting.extend(graph.node)
