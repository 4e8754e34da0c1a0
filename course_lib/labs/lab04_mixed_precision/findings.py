"""The file `findings.toml` of lab 04: which nodes fail in FP16, and the magnitude of their values."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from course_lib.errors import CourseError
from course_lib.labs.framework.submission_files import read_toml
from course_lib.labs.lab04_mixed_precision.ranges import LARGEST, SMALLEST, by_node, written

if TYPE_CHECKING:
    import numpy as np
    import onnx

FILE = "findings.toml"
MAX_BYTES = 64 << 10
MOST_NODES = 64  # the network has 200 that compute on floats
# Error of the logits when one node alone computes in FP16. Measured: at least 0.5 % for the nodes that break, at most 0.03 %
# for all others, among them the three around the overflows that do no harm (at most 0.002 %).
BREAKS = 1e-3
# A tensor this close to the end of FP16 overflows for some digits and not for others. Naming it is right, and so is leaving it out.
_GRAY = 1.25
_FACTOR = 2.0  # how far a magnitude may be off: other digits move it by 20 %

Findings = Mapping[str, float]


def write(findings: Findings, path: str | os.PathLike[str]) -> None:
    """Write `findings.toml`: for each node the largest magnitude that it reads or writes."""
    lines = [f'"{node}" = {float(size):.6g}' for node, size in findings.items()]
    Path(path).write_text("\n".join(["[largest]", *lines, ""]), encoding="utf-8")


def read(path: Path) -> Findings:
    """The content of a file that `write` wrote.

    Raises:
        CourseError: the file is missing, too long, not TOML, or not a table `largest` of at most `MOST_NODES` numbers.
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
        missing: modules of the network that fail although the findings name none of their failing nodes.
        vanished: those of `missing` whose numbers are too small for FP16 rather than too large.
        innocent: named nodes that do not fail alone.
        harmless: those of `innocent` whose values exceed FP16 nevertheless.
        misread: nodes that are named correctly but with a wrong magnitude.
        faults: number of modules that fail.
    """

    missing: tuple[str, ...]
    vanished: tuple[str, ...]
    innocent: tuple[str, ...]
    harmless: tuple[str, ...]
    misread: tuple[str, ...]
    faults: int

    @property
    def wrong(self) -> int:
        """Number of mistakes: places missed, nodes named without reason and magnitudes that are far off."""
        return len(self.missing) + len(self.innocent) + len(self.misread)


def judge(findings: Findings, model: onnx.ModelProto, tokens: np.ndarray) -> Judged:
    """Measure on a fresh batch which nodes fail alone in FP16, and compare them with the findings.

    A node breaks if the logits change by more than `BREAKS` when it alone computes in FP16. Whether its numbers fit into FP16 does
    not matter. A place is a module in which a tensor does not fit into FP16 and its maker breaks. Any breaking node that reads or
    makes such a tensor counts for the place.

    Args:
        model: the given network, float32.
        tokens: one batch of its input, ``(N, S, 32)``.

    Raises:
        CourseError: a node that the network does not have.
    """
    operators = {node.name: node for node in model.graph.node}
    if unknown := next((name for name in findings if name not in operators), None):
        raise CourseError(f"{FILE} names {unknown[:60]!r}, which is not a node of the given network")
    largest = written(model, tokens)
    sizes = by_node(model, largest)
    makers = {
        tensor: node.name
        for node in model.graph.node
        if node.op_type != "Constant"
        for tensor in node.output
        if tensor in largest
    }
    misfits = {t: node for t, node in makers.items() if largest[t] > LARGEST * _GRAY or 0 < largest[t] < SMALLEST}
    breaking = _breaking({*findings, *misfits.values()}, model, tokens)
    places: dict[str, set[str]] = {}  # each with its tensors
    for tensor, maker in misfits.items():
        if maker in breaking:
            places.setdefault(maker.rpartition("/")[0], set()).add(tensor)
    guilty = [node for node in findings if node in breaking]
    spoken_for = {tensor for node in guilty for tensor in (*operators[node].input, *operators[node].output)}
    missing = tuple(place for place, tensors in places.items() if not tensors & spoken_for)
    innocent = tuple(
        node for node in findings if node not in breaking and not LARGEST / _GRAY <= sizes.get(node, 0.0) <= LARGEST * _GRAY
    )
    return Judged(
        missing=missing,
        vanished=tuple(place for place in missing if all(largest[tensor] < SMALLEST for tensor in places[place])),
        innocent=innocent,
        harmless=tuple(node for node in innocent if sizes.get(node, 0.0) > LARGEST),
        misread=tuple(node for node in guilty if not sizes[node] / _FACTOR <= findings[node] <= sizes[node] * _FACTOR),
        faults=len(places),
    )


def _breaking(nodes: Collection[str], model: onnx.ModelProto, tokens: np.ndarray) -> frozenset[str]:
    """Those of `nodes` that destroy the logits when they alone are reduced to FP16."""
    from course_lib.benchmark import sensitivity

    rows = sensitivity(model, {"tokens": tokens}, nodes=nodes, progress=False).rows
    return frozenset(row.node for row in rows if row.deviation.nonfinite or row.deviation.relative_error > BREAKS)
