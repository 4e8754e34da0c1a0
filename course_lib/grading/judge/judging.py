"""The judge: takes a submission's files and examines them in the sandbox with secret fresh data."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import secrets
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, MutableMapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import Any

import course_lib
from course_lib import __version__
from course_lib._util.cpu_int8 import cpu_info
from course_lib._util.plain_text import plain
from course_lib.engines import available_backends
from course_lib.engines.worker.allowance import Allowance, Charged
from course_lib.errors import WORKER_ENDED, BackendUnavailable, ExaminerFault, OutOfTime
from course_lib.grading.isolation import sandbox
from course_lib.grading.isolation.confinement import Confined, confined, enforced_by
from course_lib.grading.judge import artifacts
from course_lib.grading.judge.health import Device
from course_lib.grading.judge.timings import environment, shared
from course_lib.grading.judge.verdict import Verdict
from course_lib.grading.reports.layer_feedback import compared_with_reference
from course_lib.labs import Examination, Examiner, Lab, Outcome
from course_lib.labs.framework.criteria import JUDGE_FAILED, UNUSUAL, Task, Tier

RUNNER_SANDBOX = sandbox.Sandbox(cpu_seconds=900, file_bytes=128 << 20)
FUNCTIONS_BYTES = 2 << 30  # memory of a learner's functions without an engine: those of the references fit into half of it
_USED_UP = (
    "its processes took more than {seconds:g} s in all, the limit for one submission, and were stopped. "
    "Which of your functions or engines is slow? The reference takes less than half of that time."
)
_SLOW = "Time each of its parts."
_FAILED = "The grader's own code failed while it judged this task. An instructor will look at it."
# TensorRT times kernels while it builds: whole gradings of references took up to 261 s on an H200 (`labs_h200.json`).
_TIMES_ON_GPU = 4
PATIENCE = 2  # what could not be decided is measured once more, so many times as long


def sandbox_of(lab: Lab, **limits: Any) -> sandbox.Sandbox:
    """The sandbox for a submission of this lab. `limits` are those for some of its processes; the lab's own come first."""
    return replace(RUNNER_SANDBOX, **{**limits, **lab.sandbox})


def judge(
    lab: Lab,
    folder: Path,
    *,
    examiner: Examiner | None = None,
    trusted: bool = False,
    device: Device | None = None,
    known: MutableMapping[str, Verdict] | None = None,
    rejected: str = "",
    notes: Sequence[str] = (),
) -> Verdict:
    """Examine the files of a submission.

    Args:
        folder: folder with the files. Only the lab's artifacts are taken, and only as plain files.
        examiner: where to examine. The sandbox, a secret seed if it has none, and the device's turns are added to it.
        trusted: run without the sandbox, only for the course's own files and never for a learner's.
        device: the device to measure on; default: the GPU that this process sees, otherwise the processor.
        known: verdicts of the same batch, to which this one is added. Equal files are judged once, so they get equal points and
            a class takes less time. Inconclusive tasks are judged again.
        rejected: why a file that is not in the folder was rejected before.
        notes: lines on the files, such as "Model.ONNX was taken as model.onnx", for the verdict's provenance.

    Raises:
        SandboxMissing: no sandbox works here and `trusted` is not set.
    """
    if not trusted:
        sandbox.require()
    device, examiner = device or Device.here(), examiner or Examiner()
    with ExitStack() as stack:
        launcher = bare = None
        boxes: list[Confined] = []
        allowance = Allowance(lab.process_s * (_TIMES_ON_GPU if examiner.on_gpu else 1), _USED_UP)
        timings = shared(lab, examiner, device)
        if timings and trusted:
            stack.enter_context(environment(timings.variables))
        if not trusted:
            kept = {"readable": (timings.folder,), "environment": timings.variables} if timings else {}
            kinds = (sandbox_of(lab, **kept), sandbox_of(lab, course=False, memory_bytes=FUNCTIONS_BYTES))
            boxes = [stack.enter_context(confined(one)) for one in kinds]
            launcher, bare = (Charged(one, allowance) for one in boxes)
        seed = secrets.randbits(32) if examiner.seed is None else examiner.seed
        examiner = replace(examiner, launcher=launcher, bare_launcher=bare, seed=seed, measured=device.measured)
        taken = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        rejected = rejected or artifacts.take_all(lab.artifacts, folder, taken)
        provenance = {**_provenance(lab, examiner, taken, trusted), "device": device.name}
        noted = {"notes": list(notes)} if notes else {}
        provenance |= noted | ({"timings": timings.to_json()} if timings else {})
        if rejected:
            zero = lab.zero_outcomes(rejected, "Run the whole notebook: it writes the files.")
            return Verdict(lab.name, zero, "", provenance)
        same = json.dumps([lab.name, trusted, examiner.builder, examiner.runner, provenance["sha256"]])
        if known is not None and same in known:
            earlier = {key: value for key, value in known[same].provenance.items() if key != "notes"}
            return replace(known[same], provenance={**earlier, **noted, "judged_once": "for equal files of this batch"})
        try:
            found = _examined(lab, taken, examiner, allowance, boxes, device)
        except (ExaminerFault, BackendUnavailable) as error:  # such as a GPU that has gone
            return Verdict(lab.name, (), str(error), provenance)
        except Exception as error:  # a fault of the course: the verdict says so, and the others of the batch are graded
            traceback.print_exc()
            return Verdict(lab.name, (), plain(f"{type(error).__name__}: {error}", 300), provenance)
        if found.faults:
            provenance["faults"] = {task: plain(error, 300) for task, error in found.faults.items()}
        provenance["health"] = [record.to_json() for record in device.records]
        table = found.plan.layers if found.plan else None
        layers = compared_with_reference(lab, found.plan, examiner.for_ours) if found.plan else None
        verdict = Verdict(lab.name, found.outcomes, "", provenance, found.figures, found.comparison, table, layers)
        settled = not _ended(found) and all(outcome.tier != Tier.INCONCLUSIVE for outcome in found.outcomes)
        if known is not None and settled:  # another examination of the same files would have the same result
            known[same] = verdict
        return verdict


def _examined(
    lab: Lab, taken: Path, examiner: Examiner, allowance: Allowance, boxes: Sequence[Confined], device: Device
) -> Examination:
    """Repeat the examination if something else may have killed a process, and with more time if measuring could not decide.

    All attempts share one allowance. An attempt that runs out of it does not replace the one before it.
    """

    def attempt(examiner: Examiner) -> Examination:
        device.disturbances.clear()
        return without_disturbed(lab, _attempt(lab, taken, examiner, allowance, boxes), device.disturbances)

    found: Examination | None = None
    with suppress(ExaminerFault, BackendUnavailable):
        found = attempt(examiner)
    if found is None or _ended(found):
        found = _better(found, attempt(examiner), allowance)
    if _undecided(found):
        found = _better(found, attempt(replace(examiner, measure_s=PATIENCE * examiner.measure_s)), allowance)
    return found


def without_disturbed(lab: Lab, found: Examination, disturbances: Sequence[str]) -> Examination:
    """The examination, in which tasks that depend on a disturbed measurement are inconclusive: an instructor decides about them."""
    if not disturbances:
        return found
    reason = f"The measurement was disturbed: {disturbances[-1]}. Grade again on a quiet machine."
    outcomes = [
        lab.outcome(outcome.task.id, Tier.INCONCLUSIVE, f"{reason} Measured: {outcome.message}", share=0.0)
        if outcome.task.id in lab.timed_tasks
        else outcome
        for outcome in found.outcomes
    ]
    return replace(found, outcomes=tuple(outcomes))


def _attempt(lab: Lab, taken: Path, examiner: Examiner, allowance: Allowance, boxes: Sequence[Confined]) -> Examination:
    """One examination. A submission that has used up its time has not caused a fault of the examiner, whatever failed afterwards."""
    faults: dict[str, str] = {}

    def judged(decide: Callable[[], Outcome], *, task: Task) -> Outcome:
        try:
            return decide()
        except (ExaminerFault, BackendUnavailable):
            raise
        except Exception as error:
            allowance.check()
            faults[task.id] = f"{type(error).__name__}: {error}"
            if len(faults) == len(lab.tasks):
                raise
            traceback.print_exc()
            return lab.outcome(task.id, Tier.INCONCLUSIVE, _FAILED, share=0.0, code=JUDGE_FAILED)

    try:
        allowance.check()
        found = lab.examine(taken, replace(examiner, judged=judged))
    except (ExaminerFault, BackendUnavailable, OutOfTime):
        check_starts(boxes)
        if not allowance.used_up:
            raise
        return Examination(lab.zero_outcomes(allowance.said, _SLOW))
    check_starts(boxes)
    return replace(found, faults=faults)


def check_starts(boxes: Sequence[Confined]) -> None:
    """Raises ExaminerFault if a sandbox has not started, because what was found is then not the submission's."""
    if failed := "".join(box.take_failed_start() for box in boxes):
        raise ExaminerFault(f"a sandbox did not start ({failed}): something on this machine uses up what it needs")


def _better(before: Examination | None, after: Examination, allowance: Allowance) -> Examination:
    return before if before and allowance.used_up else after


def _undecided(found: Examination) -> bool:
    """Whether measuring again can help: it neither explains a result that is unusual nor repairs the course's own code."""
    return any(outcome.tier == Tier.INCONCLUSIVE and outcome.code not in (UNUSUAL, JUDGE_FAILED) for outcome in found.outcomes)


def _ended(found: Examination) -> bool:
    """Whether a process ended, by itself or not."""
    return any(outcome.code == WORKER_ENDED for outcome in found.outcomes)


def _provenance(lab: Lab, examiner: Examiner, taken: Path, trusted: bool) -> dict[str, object]:
    files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(taken.iterdir())}
    return {
        "course": __version__,
        "commit": course_commit(),
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "machine": provenance_of_machine(),
        "python": sys.version.split()[0],
        "backends": {found.name: found.version for found in available_backends() if found.version},
        "builder": examiner.builder,
        "runner": examiner.runner,
        "sandbox": "none: the course's own files" if trusted else f"bubblewrap, limits held by {enforced_by()}",
        "seed": examiner.seed,
        "sha256": files,
        "load": [round(value, 2) for value in os.getloadavg()],
    }


@cache
def course_commit() -> str:
    """The commit of the course's own repository, with "-dirty" if its files differ from it; "" without one."""
    root = Path(course_lib.__file__).parents[1]
    if not (root / ".git").exists():
        return ""
    command = ["git", "-C", str(root), "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ran.stdout.strip() if ran.returncode == 0 else ""


def provenance_of_machine() -> str:
    """Architecture, cores and name of the processor."""
    return f"{platform.machine()}, {os.cpu_count()} cores, {cpu_info('model name') or platform.processor()}"
