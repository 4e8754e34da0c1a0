"""A check without points, in the grader's sandbox if there is one, because the files may come from an unknown source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from course_lib._util.files import scratch_folder
from course_lib.benchmark.device_lock import alone, device_name
from course_lib.grading.isolation import sandbox
from course_lib.grading.isolation.confinement import confined
from course_lib.grading.judge import artifacts
from course_lib.grading.judge.judging import check_starts, sandbox_of
from course_lib.labs import Examination, Examiner, Lab
from course_lib.labs.framework.examination import silently

_T = TypeVar("_T")
_MEASUREMENT_S = 25.0  # of another process


def check(
    lab: Lab,
    folder: Path,
    *,
    only: str | None = None,
    seed: int | None = None,
    begins: Callable[[str, float], None] = silently,
) -> Examination:
    """The grader's examination on fresh data, without a verdict.

    The files are taken as the grader takes them. Processes that run or read them run in the sandbox. Without a sandbox (see
    `sandbox.problem`), they have the permissions of the user, and the caller must tell the user so.

    Args:
        seed: of the fresh data, to repeat an examination; default: a new one.
        begins: see `Examiner`.
    """
    with scratch_folder("check-") as taken:
        if rejected := artifacts.take_all(lab.artifacts, folder, taken):
            hint = "Run the whole notebook: it writes the files."
            return Examination(lab.zero_outcomes(rejected, hint, [only] if only else None))
        device = device_name()

        def measured(take: Callable[[], _T], /, *, device_clock: bool = False) -> _T:
            with alone(device, lambda: begins(f"waiting: another measurement runs on {device}", _MEASUREMENT_S)):
                return take()

        examiner = Examiner(seed=seed, begins=begins, measured=measured)
        if sandbox.problem():
            return _of(only, lab.examine(taken, examiner, only))
        with confined(sandbox_of(lab)) as launcher:
            found = lab.examine(taken, replace(examiner, launcher=launcher), only)
            check_starts([launcher])
            return _of(only, found)


def _of(task: str | None, found: Examination) -> Examination:
    """Without outcomes of other tasks, which a lab may have learned on the way."""
    return replace(found, outcomes=tuple(one for one in found.outcomes if task in (None, one.task.id)))
