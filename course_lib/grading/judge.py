"""The judge: takes a hand-in's files, examines them in the sandbox with secret fresh data, and writes a verdict."""

from __future__ import annotations

import hashlib
import os
import platform
import secrets
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from course_lib import __version__
from course_lib.engines import available_backends
from course_lib.errors import CourseError, ExaminerFault
from course_lib.grading import artefacts, sandbox
from course_lib.labs import Bench, Examination, Lab

RUNNER_SANDBOX = sandbox.Sandbox(cpu_seconds=900, file_bytes=128 << 20)


@dataclass(frozen=True)
class Verdict:
    """The judgement on one hand-in.

    Attributes:
        lab: full name of the lab.
        examination: outcomes, layers and latencies; None where the examiner itself failed.
        fault: why the examiner failed, empty otherwise. The hand-in is then not graded, rather than graded wrongly.
        provenance: versions, device, digests, seed and date, enough to repeat the examination.
    """

    lab: str
    examination: Examination | None
    fault: str
    provenance: Mapping[str, Any] = field(repr=False)

    @property
    def score(self) -> float:
        return self.examination.points if self.examination else 0.0

    @property
    def max_score(self) -> float:
        return self.examination.max_points if self.examination else 0.0

    @property
    def needs_instructor(self) -> bool:
        """Whether measuring could not decide, or the examiner failed."""
        return not self.examination or any(outcome.tier == "inconclusive" for outcome in self.examination.outcomes)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        found = self.examination
        return {
            "lab": self.lab,
            "score": self.score,
            "max_score": self.max_score,
            "needs_instructor": self.needs_instructor,
            "fault": self.fault,
            "tasks": [outcome.to_json() for outcome in found.outcomes] if found else [],
            "figures": dict(found.figures) if found else {},
            "comparison": found.comparison.to_json() if found and found.comparison else None,
            "kernels": len(found.plan.layers.kernels) if found and found.plan else None,
            "onnx_nodes": len(found.plan.layers.operators) if found and found.plan else None,
            "provenance": dict(self.provenance),
        }


def judge(lab: Lab, folder: Path, *, bench: Bench | None = None, trusted: bool = False) -> Verdict:
    """Examine the files of a hand-in.

    Args:
        lab: what is asked.
        folder: where the files lie. Only the lab's artefacts are taken, and only as plain files.
        bench: where to examine; the sandbox and a secret seed are added to it.
        trusted: run without the sandbox. For the course's own files only, never for a learner's.

    Raises:
        SandboxMissing: no sandbox works here and `trusted` is not set.
    """
    if not trusted:
        sandbox.require()
    launcher = None if trusted else RUNNER_SANDBOX.command
    bench = replace(bench or Bench(), launcher=launcher, seed=secrets.randbits(32))
    with tempfile.TemporaryDirectory() as taken:
        refused = _take(lab, folder, Path(taken))
        provenance = _provenance(lab, bench, Path(taken), trusted)
        if refused:
            nothing = lab.nothing(refused, "Run the whole notebook: it writes the files.")
            return Verdict(lab.name, Examination(nothing), "", provenance)
        try:
            return Verdict(lab.name, lab.examine(Path(taken), bench), "", provenance)
        except ExaminerFault as error:
            return Verdict(lab.name, None, str(error), provenance)


def _take(lab: Lab, folder: Path, into: Path) -> str:
    """Copy what is there; why a file is refused, or "". One that is missing costs the tasks that need it: the lab says which."""
    try:
        for name, limit in lab.artefacts.items():
            if os.path.lexists(folder / name):
                artefacts.take(folder / name, into / name, max_bytes=limit)
    except CourseError as error:
        return str(error)
    return ""


def _provenance(lab: Lab, bench: Bench, taken: Path, trusted: bool) -> dict[str, Any]:
    files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(taken.iterdir())}
    return {
        "course": __version__,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {_processor()}",
        "python": sys.version.split()[0],
        "backends": {found.name: found.version for found in available_backends() if found.version},
        "builder": bench.builder,
        "runner": bench.runner,
        "sandbox": "none: the course's own files" if trusted else "bubblewrap",
        "seed": bench.seed,
        "sha256": files,
        "load": [round(value, 2) for value in os.getloadavg()],
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.processor())
