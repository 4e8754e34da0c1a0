"""The file `causes.json` of lab 02: the suspects that cost kernels, each with nodes of the given network as evidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from course_lib.engines import LayerTable
from course_lib.errors import CourseError
from course_lib.labs.framework.submission_files import read_json
from course_lib.labs.lab02_fusion import reference_causes

FILE = "causes.json"
MAX_BYTES = 64 << 10
# Each suspect, and the parts of the given network that do what it stands for.
PARTS = {
    "activation": ("act", "block1.act", "block2.act", "block3.act"),
    "branches": ("block2.conv1",),
    "casts": ("standardize",),
    "concat": ("block3.conv1",),
    "head": ("head",),
    "layout": ("block1.norm1",),
    "primitives": ("norm",),
    "reshape": ("pool",),
    "residual": ("block1.join", "block2.join", "block3.join"),
}

Causes = Mapping[str, tuple[str, ...]]


def read(path: Path) -> Causes:
    """Names of nodes by suspect, from `causes.json`.

    Raises:
        CourseError: the file is missing, too long, not JSON, or not an object with a list of names for each named suspect.
    """
    found = read_json(path, MAX_BYTES, "name a node or two for each cause")
    if not isinstance(found, dict):
        raise CourseError(f'{FILE} has to be an object such as {{"casts": ["/standardize/Cast"]}}, found {found!r:.60}')
    for suspect, nodes in found.items():
        if suspect not in PARTS:
            raise CourseError(f"{FILE} names {suspect[:40]!r}; the suspects are {', '.join(PARTS)}")
        if not isinstance(nodes, list) or not nodes or not all(isinstance(node, str) for node in nodes):
            raise CourseError(f"{FILE} needs for {suspect!r} a list with at least one node name, found {nodes!r:.60}")
    return {suspect: tuple(nodes) for suspect, nodes in found.items()}


@dataclass(frozen=True)
class Judged:
    """The mistakes in some causes.

    Attributes:
        missing: suspects that cost kernels and are not named.
        innocent: named suspects that do not cost kernels.
        evidence: for each other suspect with invalid evidence, the reason.
        without_cost: number of suspects that do not cost kernels and must not be named.
    """

    missing: tuple[str, ...]
    innocent: tuple[str, ...]
    evidence: Mapping[str, str]
    without_cost: int

    @property
    def few_innocent(self) -> bool:
        """Whether fewer than half of the suspects without a cost are named. Naming all suspects but one names at least half."""
        return not self.innocent or 2 * len(self.innocent) < self.without_cost

    @property
    def wrong(self) -> int:
        """Number of suspects that were judged wrongly."""
        return len(self.missing) + len(self.innocent) + len(self.evidence)


def judge(causes: Causes, costs: Mapping[str, int], given: LayerTable) -> Judged:
    """Compare the named suspects with the measurements.

    Builders differ. A suspect in `GUILTY` may always be named, because a learner may have measured with TensorRT for RTX. It must
    be named if it costs kernels with this builder. Any other suspect may be named if it costs kernels.

    Args:
        costs: number of kernels that each suspect costs with this builder.
        given: the layer table of the given network from the same builder.
    """
    costly = {suspect for suspect, kernels in costs.items() if kernels > 0}
    allowed = costly.union(reference_causes.GUILTY)
    problems = {
        suspect: _problem(suspect, nodes, given, seen=suspect in costly)
        for suspect, nodes in causes.items()
        if suspect in allowed
    }
    return Judged(
        missing=tuple(suspect for suspect in reference_causes.GUILTY if suspect in costly and suspect not in causes),
        innocent=tuple(suspect for suspect in causes if suspect not in allowed),
        evidence={suspect: problem for suspect, problem in problems.items() if problem},
        without_cost=len(set(PARTS) - allowed),
    )


def invalid_evidence(causes: Causes, given: LayerTable) -> Mapping[str, str]:
    """For each named suspect with nodes of another part, or of no part, the reason. It needs no reference."""
    problems = {suspect: _problem(suspect, nodes, given, seen=False) for suspect, nodes in causes.items()}
    return {suspect: problem for suspect, problem in problems.items() if problem}


def _problem(suspect: str, nodes: tuple[str, ...], given: LayerTable, *, seen: bool) -> str:
    """Why these nodes are not evidence; empty if they are. With `seen`, each has to be inside a kernel of the given network."""
    running = {node for kernel in given.kernels for node in kernel.onnx_nodes}
    part = tuple("/" + path.replace(".", "/") + "/" for path in PARTS[suspect])
    # TensorRT 8.6 names a subgraph by its ends alone, as {ForeignNode[a...b]}: that does not show what was removed.
    seen = seen and not any("ForeignNode" in kernel.name for kernel in given.kernels)
    for node in nodes:
        if node not in given.operators:
            return f"{node[:60]!r} is not a node of the given network"
        if not node.startswith(part):
            return f"{node[:60]!r} belongs to another part of the network"
        if seen and node not in running:
            return f"{node[:60]!r} is not in any kernel, because the compiler removed it"
    return ""
