"""One submission graded from beginning to end in its own folder, by any process of any machine."""

from __future__ import annotations

import json
import shutil
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from course_lib import labs
from course_lib._util.files import remove_tree
from course_lib.errors import CourseError
from course_lib.grading.batch.archive import Archive, Selection
from course_lib.grading.batch.arrangement import arrange
from course_lib.grading.batch.intake import settle_time
from course_lib.grading.batch.notebook_limits import prepare, set_aside
from course_lib.grading.judge.verdict import verdict_file
from course_lib.grading.nbgrader import gradebook
from course_lib.grading.nbgrader.log import NbgraderLog
from course_lib.labs import Lab

if TYPE_CHECKING:
    from types import FrameType

    from nbgrader.apps.api import NbGraderAPI

WORK = "classroom"
RESULTS = ("reports", "feedback", "autograded")


@dataclass(frozen=True)
class Job:
    """The data that a process needs to grade one submission.

    Attributes:
        lab, student: lab and student of the submission.
        files: the submission.
        course: the lab's release and a gradebook with the lab and without grades; see `gradebook.write_template`.
        digest: digest of the submission. Equal submissions are graded once in a batch.
        said: known problems of the submission.
        notes: lines for the verdict on where the submission was found.
        trusted: run without the sandbox.
        examiner: see `Classroom`.
        settings: nbgrader's configuration by class, see `bridge.api`.
        batch: the name of the batch: equal files are judged once in it.
    """

    lab: str
    student: str
    files: Selection | Archive = field(repr=False)
    course: Selection | Archive = field(repr=False)
    digest: str
    said: str = ""
    notes: tuple[str, ...] = ()
    trusted: bool = False
    examiner: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    batch: str = ""

    def packed(self) -> Job:
        """The same for another process."""
        return replace(self, files=_packed(self.files), course=_packed(self.course))


@dataclass(frozen=True)
class Result:
    """The result of a `Job`.

    Attributes:
        files: `RESULTS`; nbgrader's log is next to the report.
        verdict: the JSON of a `Verdict`, not signed yet; empty if nbgrader failed.
        entry: the other data for the gradebook, see `gradebook.entry`; empty if nbgrader failed.
        error: why it was graded in part or not graded.
    """

    lab: str
    student: str
    digest: str
    files: Selection | Archive = field(repr=False)
    verdict: Mapping[str, Any] = field(repr=False)
    entry: Mapping[str, Any] = field(repr=False)
    error: str = ""

    def packed(self) -> Result:
        """The same for another process."""
        return replace(self, files=_packed(self.files))

    def to_bytes(self) -> bytes:
        """The result as bytes for the journal; `from_bytes` reads them."""
        head = {name: value for name, value in vars(self).items() if name != "files"}
        return json.dumps(head).encode() + b"\n" + _packed(self.files).content

    @classmethod
    def from_bytes(cls, content: bytes) -> Result:
        """The result from the bytes of `to_bytes`.

        Raises:
            CourseError: the bytes are something else or incomplete.
        """
        head, _, files = content.partition(b"\n")
        try:
            return cls(**json.loads(head), files=Archive(files))
        except (ValueError, TypeError, RecursionError):
            raise CourseError("the result of a grading cannot be read") from None


def _packed(files: Selection | Archive) -> Archive:
    return files.packed if isinstance(files, Selection) else files


def examine(job: Job, root: Path) -> Result:
    """Run the notebook, judge the files, write report and feedback, all of it below `root`, an empty folder.

    Raises:
        SandboxMissing: no sandbox works here and the job is not `trusted`.
    """
    lab = labs.find(job.lab)
    job.course.copy_to(root)
    submitted = root / WORK / "submitted" / job.student / lab.name
    submitted.mkdir(parents=True)
    job.files.copy_to(submitted)
    release = root / WORK / "release" / lab.name / f"{lab.name}.ipynb"
    notes = [*job.notes, *arrange(submitted, (release.name, *lab.artifacts))]
    said = [job.said, settle_time(submitted)]
    if not (submitted / release.name).is_file():
        remove_tree(submitted / release.name)  # it may be a folder
    read = prepare(submitted / release.name, release)
    if read.problem:
        said.append(f"the notebook could not be read completely ({read.problem}): written answers that are missing stay open")
    run = read.has_cells and job.settings.get("SandboxedExecute", {}).get("run", True)
    if failed := _autograde(job, lab, root, notes, run=run):
        said.append(f"nbgrader failed on the notebook ({failed}): it was not run, and written answers stay open")
        set_aside(submitted / release.name, release, failed)
        failed = _autograde(job, lab, root, notes, run=False)
    path, verdict, entry = verdict_file(root / WORK, job.student, lab), {}, {}
    if not failed:
        verdict, entry = json.loads(path.read_bytes()), gradebook.entry(root / WORK / "gradebook.db", lab, job.student)
        said.append(_page(job, lab, root, release))
    path.unlink(missing_ok=True)  # the classroom signs it and writes it
    files = Selection(root / WORK, RESULTS, times=4)  # two copies of the submission, and what was written
    return Result(lab.name, job.student, job.digest, files, verdict, entry, "; ".join(filter(None, [*said, failed])))


def _autograde(job: Job, lab: Lab, root: Path, notes: list[str], *, run: bool) -> str:
    """Run the notebook if `run`, and judge the files; return why that failed, or ""."""
    with _nbgrader(job, lab, root, notes=notes, run=run) as (nbgrader, log):
        done = nbgrader.autograde(lab.name, job.student)
    return "" if done["success"] else log.reason(done)


def _page(job: Job, lab: Lab, root: Path, release: Path) -> str:
    """Write the learner's page and return what is wrong with it, or "". If the learner's notebook cannot be shown, use the empty one.

    The points are already known and do not change.
    """
    with _nbgrader(job, lab, root) as (nbgrader, log):
        done = nbgrader.generate_feedback(lab.name, job.student)
        for path in (root / WORK / "feedback" / job.student / lab.name).glob("*"):
            if path.name != f"{lab.name}.html":  # nbgrader copies what was submitted there, pages with scripts included
                remove_tree(path)
        if done["success"]:
            return ""
        why, graded = log.reason(done), root / WORK / "autograded" / job.student / lab.name / release.name
        content = graded.read_bytes()
        shutil.copyfile(release, graded)
        shown = nbgrader.generate_feedback(lab.name, job.student)["success"]
        graded.write_bytes(content)  # the instructor's copy is the learner's
    return f"nbgrader could not show the notebook ({why}): " + (
        "the page shows the empty notebook" if shown else "there is no page"
    )


@contextmanager
def _nbgrader(
    job: Job, lab: Lab, root: Path, *, notes: Sequence[str] = (), run: bool = False
) -> Iterator[tuple[NbGraderAPI, NbgraderLog]]:
    """nbgrader's API for this folder, and its log, which is next to the report.

    Args:
        notes: lines on the files for the verdict.
        run: run the notebook.
    """
    from course_lib.grading.nbgrader.bridge import api

    path = root / WORK / "reports" / job.student / f"{lab.name}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    log = NbgraderLog(path)
    judging = {**job.settings.get("GradeArtifacts", {}), "batch": job.batch, "notes": list(notes)}
    judging["sign"] = False  # the classroom's key is not here
    execution = {**job.settings.get("SandboxedExecute", {}), "run": run}
    settings = {**job.settings, "GradeArtifacts": judging, "SandboxedExecute": execution}
    settings["LatePenalty"] = {}  # it needs extensions and points by hand, which are in the classroom's gradebook
    try:
        with interruptible():
            yield api(root, WORK, trusted=job.trusted, examiner=job.examiner, settings=settings, log=log), log
    finally:
        log.close()


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise `KeyboardInterrupt` at the end if Ctrl-C was pressed within: nbgrader takes it for a failure of the submission and goes on."""
    usual = signal.getsignal(signal.SIGINT)
    if usual is not signal.default_int_handler or threading.current_thread() is not threading.main_thread():
        yield  # an interrupt is ignored, or handled by another part of the program
        return
    pressed = threading.Event()

    def interrupt(number: int, frame: FrameType | None) -> None:
        pressed.set()
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
    if pressed.is_set():
        raise KeyboardInterrupt
