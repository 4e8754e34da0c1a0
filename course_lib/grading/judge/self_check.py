"""A check without points, in the grader's sandbox if there is one, because the files may come from an unknown source."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from course_lib._util.files import scratch_folder
from course_lib.grading.isolation import sandbox
from course_lib.grading.isolation.confinement import confined
from course_lib.grading.judge import artifacts
from course_lib.grading.judge.judging import check_starts, sandbox_of
from course_lib.labs import Examination, Examiner, Lab
from course_lib.labs.framework.examination import silently


def check(lab: Lab, folder: Path, *, begins: Callable[[str, float], None] = silently) -> Examination:
    """The grader's examination on fresh data, without a verdict.

    The files are taken as the grader takes them. Processes that run or read them run in the sandbox. Without a sandbox (see
    `sandbox.problem`), they have the permissions of the user, and the caller must tell the user so.

    Args:
        lab: the lab.
        folder: folder with the files of a submission.
        begins: see `Examiner`.
    """
    with scratch_folder("check-") as taken:
        if rejected := artifacts.take_all(lab.artifacts, folder, taken):
            return Examination(lab.zero_outcomes(rejected, "Run the whole notebook: it writes the files."))
        if sandbox.problem():
            return lab.examine_as_learner(taken, Examiner(begins=begins))
        with confined(sandbox_of(lab)) as launcher:
            found = lab.examine_as_learner(taken, Examiner(launcher=launcher, begins=begins))
            check_starts([launcher])
            return found
