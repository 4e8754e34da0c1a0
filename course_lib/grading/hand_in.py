"""One hand-in graded from beginning to end in a folder of its own: bytes in, bytes out, so that any process of any machine can do it."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from course_lib import labs
from course_lib.errors import CourseError
from course_lib.files import scratch_folder
from course_lib.grading import gradebook, parcel
from course_lib.labs import Lab

WORK = "classroom"
_LARGEST_NOTEBOOK, _MOST_CELLS = 20 << 20, 500
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*: .")  # a message of several lines begins here, and its last line may say nothing
RESULTS = ("reports", "feedback", "autograded")


@dataclass(frozen=True)
class Job:
    """What a process needs to grade one hand-in.

    Attributes:
        lab, student: whose.
        files: the hand-in, packed.
        course: the lab's release and a gradebook that knows the lab and nobody's grades, packed; see `gradebook.template`.
        said: what is wrong with the hand-in already.
        trusted: run without the sandbox.
        bench: see `Classroom`.
        settings: nbgrader's configuration by class, see `nbgrader_bridge.api`.
    """

    lab: str
    student: str
    files: bytes = field(repr=False)
    course: bytes = field(repr=False)
    said: str = ""
    trusted: bool = False
    bench: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Of the hand-in: the same files are graded once in a batch."""
        return hashlib.sha256(self.files).hexdigest()


@dataclass(frozen=True)
class Result:
    """What came of it.

    Attributes:
        files: `RESULTS`, packed; nbgrader's log is beside the report.
        entry: what goes into the gradebook, see `gradebook.entry`; empty where nbgrader failed.
        error: why it was graded without something that should be there, or not at all.
    """

    lab: str
    student: str
    digest: str
    files: bytes = field(repr=False)
    entry: Mapping[str, Any] = field(repr=False)
    error: str = ""

    def to_bytes(self) -> bytes:
        head = {"lab": self.lab, "student": self.student, "digest": self.digest, "entry": self.entry, "error": self.error}
        return json.dumps(head).encode() + b"\n" + self.files

    @classmethod
    def from_bytes(cls, content: bytes) -> Result:
        """What `to_bytes` wrote.

        Raises:
            CourseError: it is something else, or only a part of it.
        """
        head, _, files = content.partition(b"\n")
        try:
            return cls(**json.loads(head), files=files)
        except (ValueError, TypeError):
            raise CourseError("the result of a grading cannot be read") from None


def examine(job: Job) -> Result:
    """Run the notebook, judge the files, write report and feedback, all of it in a temporary folder.

    Raises:
        SandboxMissing: no sandbox works here and the job is not `trusted`.
    """
    lab = labs.find(job.lab)
    with scratch_folder("grading-") as root:
        parcel.unpack(job.course, root)
        submitted = root / WORK / "submitted" / job.student / lab.name
        submitted.mkdir(parents=True)
        parcel.unpack(job.files, submitted)
        release = root / WORK / "release" / lab.name / f"{lab.name}.ipynb"
        said = [job.said, _mend_timestamp(submitted)]
        if why := _unreadable(submitted / release.name):
            said.append(f"the notebook cannot be read ({why}): the empty one was run in its place")
            shutil.copyfile(release, submitted / release.name)
        if failed := _autograde(job, lab, root):
            said.append(f"nbgrader failed on the notebook ({failed}): the empty one was run in its place")
            shutil.copyfile(release, submitted / release.name)
            failed = _autograde(job, lab, root)
        entry = {} if failed else gradebook.entry(root / WORK / "gradebook.db", lab, job.student)
        said.append("" if failed else _page(job, lab, root, release))
        packed = parcel.pack(root / WORK, RESULTS, times=4)  # two copies of the hand-in, and what was written
        return Result(lab.name, job.student, job.digest, packed.content, entry, "; ".join(filter(None, [*said, failed])))


def _unreadable(path: Path) -> str:
    """Why a notebook cannot be read, or ""."""
    import nbformat

    try:
        if path.stat().st_size > _LARGEST_NOTEBOOK:
            raise ValueError(f"{path.stat().st_size >> 20} MiB, at most {_LARGEST_NOTEBOOK >> 20} are taken")
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
        if len(notebook.cells) > _MOST_CELLS:
            raise ValueError(f"{len(notebook.cells)} cells, at most {_MOST_CELLS} are taken")
        return ""
    except FileNotFoundError:
        return "it is missing or no plain file"
    except Exception as error:  # whatever a learner's file does to a parser
        return " ".join(f"{type(error).__name__}: {error}".split())[:200]


def _mend_timestamp(submitted: Path) -> str:
    """nbgrader gives up on a hand-in whose time cannot be read."""
    from nbgrader.utils import parse_utc

    path = submitted / "timestamp.txt"
    try:
        parse_utc(path.read_text(encoding="utf-8").strip()[:100])
        return ""
    except FileNotFoundError:
        return ""
    except Exception:  # the parser's own classes and arithmetic
        path.unlink()
        return "timestamp.txt holds no time: nothing is known of when it was handed in"


def _autograde(job: Job, lab: Lab, root: Path) -> str:
    """The notebook run and the files judged; why that failed, or ""."""
    with _nbgrader(job, lab, root) as nbgrader:
        done = nbgrader.autograde(lab.name, job.student)
    return "" if done["success"] else reason(done)


def _page(job: Job, lab: Lab, root: Path, release: Path) -> str:
    """The learner's page, made of the empty notebook where none can be made of the learner's; what is wrong with it, or "".

    The points are known by then, and stay.
    """
    with _nbgrader(job, lab, root) as nbgrader:
        done = nbgrader.generate_feedback(lab.name, job.student)
        if done["success"]:
            return ""
        why, graded = reason(done), root / WORK / "autograded" / job.student / lab.name / release.name
        content = graded.read_bytes()
        shutil.copyfile(release, graded)
        shown = nbgrader.generate_feedback(lab.name, job.student)["success"]
        graded.write_bytes(content)  # the instructor's copy is the learner's
    return f"nbgrader could not show the notebook ({why}): " + ("the page shows the empty one" if shown else "there is no page")


@contextmanager
def _nbgrader(job: Job, lab: Lab, root: Path) -> Iterator[Any]:
    """nbgrader's API for this folder; its log is beside the report."""
    from course_lib.grading.nbgrader_bridge import api

    log = root / WORK / "reports" / job.student / f"{lab.name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(log)
    unsigned = {**job.settings.get("GradeArtefacts", {}), "sign": False}  # the classroom's key is not here
    settings = {**job.settings, "GradeArtefacts": unsigned}
    try:
        yield api(root, WORK, trusted=job.trusted, bench=job.bench, settings=settings, log=handler)
    finally:
        handler.close()


def reason(done: Mapping[str, Any]) -> str:
    """What nbgrader's log or traceback ends with: the exception of the last traceback, otherwise the last line that says something."""
    for text in (done.get("log"), done.get("error")):
        lines = [line.strip("\n") for line in (text or "").splitlines() if line.strip()]
        began = max((number for number, line in enumerate(lines) if line.startswith("Traceback")), default=len(lines))
        if lines:
            return next((line for line in lines[began:] if _EXCEPTION.match(line)), lines[-1]).strip()[:300]
    return "no reason given"
