"""One submission graded from beginning to end in its own folder, by any process of any machine."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import nbformat

from course_lib import labs
from course_lib._util.files import remove_tree
from course_lib._util.plain_text import plain
from course_lib.grading.batch import notebook_reader
from course_lib.grading.batch.archive import TIMES_UNPACKED, Archive, Selection
from course_lib.grading.batch.arrangement import arrange
from course_lib.grading.batch.intake import submission_time
from course_lib.grading.isolation.kernel import FilesOfRun
from course_lib.grading.isolation.sandbox import SandboxMissing
from course_lib.grading.judge.judging import judge
from course_lib.grading.judge.verdict import Verdict
from course_lib.grading.nbgrader import graded_notebook
from course_lib.grading.reports import report
from course_lib.labs import Examiner

WORK = "classroom"
GRADED = "autograded"  # nbgrader's name for the folder of graded submissions
_MOST_SECONDS, _MOST_MEMORY = 8, 2 << 30  # of a processor; the course's notebooks take less than one


@dataclass(frozen=True)
class Job:
    """The data that a process needs to grade one submission.

    Attributes:
        released: the folder that learners get.
        digest: of the submission. Equal submissions are graded once in a batch.
        problem: known problems of the submission.
        notes: lines for the verdict on where the submission was found.
        examiner, execution: settings of `Examiner` and of `SandboxedExecute`.
        batch: the name of the batch: equal files are judged once in it.
    """

    lab: str
    student: str
    files: Selection | Archive = field(repr=False)
    released: Selection | Archive = field(repr=False)
    digest: str
    problem: str = ""
    notes: tuple[str, ...] = ()
    trusted: bool = False
    examiner: Mapping[str, Any] = field(default_factory=dict)
    execution: Mapping[str, Any] = field(default_factory=dict)
    batch: str = ""

    def packed(self) -> Job:
        """The same for another process."""
        return replace(self, files=self.files.packed, released=self.released.packed)


@dataclass(frozen=True)
class Result:
    """The result of a `Job`, before it is recorded.

    Attributes:
        files: the graded submission below `GRADED`.
        verdict: the JSON of a `Verdict`, not signed yet; empty if the grader failed.
        unanswered: ids of the notebook's cells for a solution without an answer.
        submitted: time of the submission in ISO 8601, "" if it is not known.
        error: why it was graded in part or not graded.
    """

    lab: str
    student: str
    digest: str
    files: Selection | Archive = field(repr=False)
    verdict: Mapping[str, Any] = field(repr=False)
    unanswered: Sequence[str] = ()
    submitted: str = ""
    error: str = ""

    def packed(self) -> Result:
        """The same for another process."""
        return replace(self, files=self.files.packed)


def examine(job: Job, root: Path) -> Result:
    """Run the notebook and judge the files, all of it below `root`, an empty folder.

    Raises:
        SandboxMissing: no sandbox works here and the job is not `trusted`.
    """
    lab = labs.find(job.lab)
    job.released.copy_to(root / "release")
    folder = root / GRADED / job.student / lab.name
    folder.mkdir(parents=True)
    job.files.copy_to(folder)
    notebook, released = (place / f"{lab.name}.ipynb" for place in (folder, root / "release"))
    given = [path.name for path in released.parent.iterdir() if path.suffix != ".ipynb" and path.name not in lab.artifacts]
    # The learner's files are found before the lab's own, which could be taken for them.
    notes = [*job.notes, *arrange(folder, (notebook.name, *lab.artifacts))]
    Selection(released.parent, given).copy_to(folder)
    submitted, time_problem = submission_time(folder)
    problems = [job.problem, time_problem]
    if not notebook.is_file():
        remove_tree(notebook)  # it may be a folder
    for path in folder.glob("*.ipynb"):  # nbgrader makes a page of each one, and knows the lab's only
        if path != notebook:
            remove_tree(path)
    unreadable = prepare(notebook, released)
    if unreadable:
        problems.append(f"the notebook could not be read ({unreadable}): written answers stay open")
    execution = {"trusted": job.trusted, **job.execution}
    execution["run"] = not unreadable and execution.get("run", True)
    try:
        shown, of_run = graded_notebook.executed(notebook, released, lab, execution)
    except SandboxMissing:
        raise
    except Exception as error:  # whatever a learner's notebook does to its tools
        failed = plain(f"{type(error).__name__}: {error}", 300)
        problems.append(f"the notebook could not be run ({failed}): written answers stay open")
        set_aside(notebook, released, failed)
        shown, of_run = nbformat.read(notebook, as_version=4), FilesOfRun()
    verdict = judge(
        lab,
        folder,
        examiner=Examiner(**job.examiner),
        trusted=job.trusted,
        known=_verdicts(job.batch) if job.batch else None,
        rejected=of_run.too_large,
        notes=(*notes, *of_run.notes),
    )
    unanswered = graded_notebook.unanswered(shown, released)
    graded_notebook.show_report(shown, report.body(verdict))
    try:
        nbformat.write(shown, notebook)
    except ValueError as error:  # half of a character in an output
        failed = plain(str(error), 100)
        problems.append(f"the outputs of the notebook cannot be written ({failed}): its page shows the empty notebook")
        set_aside(notebook, released, failed)
    return Result(
        lab.name,
        job.student,
        job.digest,
        Selection(root, (GRADED,), times=TIMES_UNPACKED),
        verdict.to_json(),
        unanswered,
        submitted.isoformat() if submitted else "",
        "; ".join(filter(None, problems)),
    )


@lru_cache(maxsize=1)
def _verdicts(batch: str) -> dict[str, Verdict]:
    """What this process has judged in one batch."""
    return {}


def prepare(path: Path, released: Path) -> str:
    """Replace a submitted notebook by one that nbgrader takes: the learner's cells, and the released notebook's metadata.

    A written answer that cannot be read is replaced by a request to open the submitted file, so a person decides about its points.

    Returns:
        Why the submitted notebook cannot be read, in one line; "" if it can.
    """
    if not path.is_file():
        return set_aside(path, released, "there is no notebook")
    command = [sys.executable, "-I", notebook_reader.__file__, str(path), str(released), str(_MOST_SECONDS), str(_MOST_MEMORY)]
    reader = subprocess.run(command, capture_output=True)
    try:
        notebook, problem = json.loads(reader.stdout)
    except (ValueError, RecursionError):
        return set_aside(path, released, f"to read and show it takes more than {_MOST_SECONDS} s or {_MOST_MEMORY >> 30} GiB")
    path.write_text(json.dumps(notebook), encoding="utf-8")
    return plain(problem, 200)


def set_aside(path: Path, released: Path, problem: str) -> str:
    """Write the released notebook with open answers, and return the problem."""
    notebook = notebook_reader.grafted([], json.loads(released.read_bytes()), problem)
    path.write_text(json.dumps(notebook), encoding="utf-8")
    return problem
