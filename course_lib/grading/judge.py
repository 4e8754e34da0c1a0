"""The judge: takes a hand-in's files, examines them in the sandbox with secret fresh data, and writes a verdict."""

from __future__ import annotations

import hashlib
import os
import platform
import secrets
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from course_lib import __version__
from course_lib.engines import available_backends
from course_lib.errors import WORKER_ENDED, BackendUnavailable, CourseError, ExaminerFault
from course_lib.grading import artefacts, sandbox
from course_lib.grading.confinement import confined, enforced_by
from course_lib.grading.health import Device
from course_lib.grading.layer_feedback import LayerFeedback, compared_with_reference
from course_lib.labs import Bench, Examination, Lab

RUNNER_SANDBOX = sandbox.Sandbox(cpu_seconds=900, file_bytes=128 << 20)
PATIENCE = 2  # what could not be decided is measured once more, so many times as long


@dataclass(frozen=True)
class Verdict:
    """The judgement on one hand-in.

    Attributes:
        lab: full name of the lab.
        examination: outcomes, layers and latencies; None where the examiner itself failed.
        fault: why the examiner failed, empty otherwise. The hand-in is then not graded, rather than graded wrongly.
        provenance: versions, device, digests, seed and date, enough to repeat the examination; the machine's health while it
            was measured; and what ended processes of the hand-in.
        layers: what sets the hand-in's engine apart from the reference's, where there is one.
    """

    lab: str
    examination: Examination | None
    fault: str
    provenance: Mapping[str, Any] = field(repr=False)
    layers: LayerFeedback | None = None

    @property
    def score(self) -> float:
        return self.examination.points if self.examination else 0.0

    @property
    def max_score(self) -> float:
        return self.examination.max_points if self.examination else 0.0

    @property
    def needs_instructor(self) -> bool:
        """Whether measuring could not decide, or the examiner failed."""
        return not self.examination or _undecided(self.examination)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, with every single latency, so that the verdict can be computed again."""
        found = self.examination
        raced = found.comparison if found else None
        latencies = {name: [float(ms) for ms in series] for name, series in raced.latencies().items()} if raced else {}
        return {
            "lab": self.lab,
            "score": self.score,
            "max_score": self.max_score,
            "needs_instructor": self.needs_instructor,
            "fault": self.fault,
            "tasks": [outcome.to_json() for outcome in found.outcomes] if found else [],
            "figures": dict(found.figures) if found else {},
            "comparison": {**raced.to_json(), "latencies_ms": latencies} if raced else None,
            "kernels": len(found.plan.layers.kernels) if found and found.plan else None,
            "onnx_nodes": len(found.plan.layers.operators) if found and found.plan else None,
            "layers": self.layers.to_json() if self.layers else None,
            "provenance": dict(self.provenance),
        }


def judge(
    lab: Lab, folder: Path, *, bench: Bench | None = None, trusted: bool = False, device: Device | None = None
) -> Verdict:
    """Examine the files of a hand-in.

    Args:
        lab: what is asked.
        folder: where the files lie. Only the lab's artefacts are taken, and only as plain files.
        bench: where to examine; the sandbox, a secret seed and the device's turns are added to it.
        trusted: run without the sandbox. For the course's own files only, never for a learner's.
        device: what is measured on; default: the GPU that this process sees, otherwise the processor.

    Raises:
        SandboxMissing: no sandbox works here and `trusted` is not set.
    """
    if not trusted:
        sandbox.require()
    device = device or Device.here()
    with ExitStack() as stack:
        launcher = None if trusted else stack.enter_context(confined(RUNNER_SANDBOX))
        bench = replace(bench or Bench(), launcher=launcher, seed=secrets.randbits(32), measured=device.measured)
        taken = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        refused = _take(lab, folder, taken)
        provenance = {**_provenance(lab, bench, taken, trusted), "device": device.name}
        if refused:
            nothing = lab.nothing(refused, "Run the whole notebook: it writes the files.")
            return Verdict(lab.name, Examination(nothing), "", provenance)
        try:
            found = _examined(lab, taken, bench)
        except (ExaminerFault, BackendUnavailable) as error:  # such as a GPU that has gone
            return Verdict(lab.name, None, str(error), provenance)
        provenance["health"] = [record.to_json() for record in device.records]
        layers = compared_with_reference(lab, found.plan, bench) if found.plan else None
        return Verdict(lab.name, found, "", provenance, layers)


def _examined(lab: Lab, taken: Path, bench: Bench) -> Examination:
    """Once more where a process ended that something else may have killed, and longer where measuring could not decide.

    Raises:
        ExaminerFault, BackendUnavailable: the examiner itself failed, twice.
    """
    found: Examination | None = None
    with suppress(ExaminerFault, BackendUnavailable):
        found = lab.examine(taken, bench)
    if found is None or any(WORKER_ENDED in outcome.message for outcome in found.outcomes):
        found = lab.examine(taken, bench)
    if _undecided(found):
        found = lab.examine(taken, replace(bench, measure_s=PATIENCE * bench.measure_s))
    return found


def _undecided(found: Examination) -> bool:
    return any(outcome.tier == "inconclusive" for outcome in found.outcomes)


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
        "machine": provenance_of_machine(),
        "python": sys.version.split()[0],
        "backends": {found.name: found.version for found in available_backends() if found.version},
        "builder": bench.builder,
        "runner": bench.runner,
        "sandbox": "none: the course's own files" if trusted else f"bubblewrap, limits held by {enforced_by()}",
        "seed": bench.seed,
        "sha256": files,
        "load": [round(value, 2) for value in os.getloadavg()],
    }


def provenance_of_machine() -> str:
    """Architecture, cores and name of the processor."""
    return f"{platform.machine()}, {os.cpu_count()} cores, {_processor()}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.processor())
