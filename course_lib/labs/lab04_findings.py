"""The file `findings.toml` of lab 04: which nodes break in FP16, and how large the numbers are that they meet."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from course_lib.errors import CourseError
from course_lib.labs.handed_in import read_toml
from course_lib.labs.lab04_ranges import LARGEST, by_node, written

if TYPE_CHECKING:
    import numpy as np
    import onnx

FILE = "findings.toml"
MAX_BYTES = 64 << 10
MOST_NODES = 64  # the network has 200 that compute on floats
# Error of the logits when one node alone computes in FP16. Measured: of those that break at least 0.5 %, of the others at most 0.005 %.
BREAKS = 1e-3
# A tensor this close to the end of FP16 overflows for some digits and not for others: naming it is right, and so is leaving it out.
_GREY = 1.25
_FACTOR = 2.0  # how far a magnitude may be off: other digits move it by 20 %

Findings = Mapping[str, float]


def write(findings: Findings, path: str | os.PathLike[str]) -> None:
    """Write `findings.toml`: for each node the largest magnitude that it reads or writes."""
    lines = [f'"{node}" = {float(size):.6g}' for node, size in findings.items()]
    Path(path).write_text("\n".join(["[largest]", *lines, ""]), encoding="utf-8")


def read(path: Path) -> Findings:
    """What `write` wrote.

    Raises:
        CourseError: no such file, too long, not TOML, or not a table `largest` of at most `MOST_NODES` numbers.
    """
    found = read_toml(path, MAX_BYTES, "name the nodes that break and no others")
    largest = found.get("largest")
    if found.keys() != {"largest"} or not isinstance(largest, dict) or not largest:
        raise CourseError(f'{FILE} has to be one table [largest] with lines such as "/norm/Mul" = 70000.0')
    if len(largest) > MOST_NODES:
        raise CourseError(f"{FILE} names {len(largest)} nodes; at most {MOST_NODES} are read, and far fewer break")
    for node, size in largest.items():
        if not _is_size(size):
            raise CourseError(f"{FILE} needs a positive number for {node[:60]!r}, found {size!r:.40}")
    return {node: float(size) for node, size in largest.items()}


def _is_size(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return 0 < value < 1e300 and math.isfinite(value)  # an integer may be too long for a float


@dataclass(frozen=True)
class Judged:
    """What is wrong with some findings.

    Attributes:
        missing: tensors that clearly overflow and of whose nodes none is named.
        innocent: nodes that are named, do not break alone, and meet no number near the end of FP16.
        misread: nodes that are named rightly, with a magnitude that is far off.
        faults: how many tensors clearly overflow.
    """

    missing: tuple[str, ...]
    innocent: tuple[str, ...]
    misread: tuple[str, ...]
    faults: int

    @property
    def wrong(self) -> int:
        return len(self.missing) + len(self.innocent) + len(self.misread)


def judge(findings: Findings, model: onnx.ModelProto, tokens: np.ndarray) -> Judged:
    """Measure on a fresh batch what overflows, and for each node that is named what it breaks alone.

    Any node that reads or makes an overflowing tensor speaks for it.

    Args:
        model: the given network, float32.
        tokens: one batch of its input, ``(N, S, 32)``.

    Raises:
        CourseError: a node that the network does not have.
    """
    operators = {node.name: node for node in model.graph.node}
    if unknown := next((name for name in findings if name not in operators), None):
        raise CourseError(f"{FILE} names {unknown[:60]!r}, which is no node of the given network")
    largest = written(model, tokens)
    sizes = by_node(model, largest)
    overflowing = [name for name, size in largest.items() if size > LARGEST * _GREY]
    breaking = _breaking(findings, model, tokens)
    guilty = [node for node in findings if node in breaking or sizes.get(node, 0.0) > LARGEST * _GREY]
    spoken_for = {name for node in guilty for name in (*operators[node].input, *operators[node].output)}
    return Judged(
        missing=tuple(name for name in overflowing if name not in spoken_for),
        innocent=tuple(node for node in findings if node not in guilty and sizes.get(node, 0.0) < LARGEST / _GREY),
        misread=tuple(node for node in guilty if not sizes[node] / _FACTOR <= findings[node] <= sizes[node] * _FACTOR),
        faults=len(overflowing),
    )


def _breaking(nodes: Collection[str], model: onnx.ModelProto, tokens: np.ndarray) -> tuple[str, ...]:
    """Those of `nodes` that ruin the logits when they alone are reduced to FP16."""
    from course_lib.benchmark import sensitivity

    rows = sensitivity(model, {"tokens": tokens}, nodes=nodes, progress=False).rows
    return tuple(row.node for row in rows if row.deviation.nonfinite or row.deviation.relative_error > BREAKS)
