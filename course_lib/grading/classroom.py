"""A classroom: the folder of hand-ins, the gradebook beside it, and the steps from one to the other."""

from __future__ import annotations

import logging
import shutil
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from course_lib.errors import CourseError
from course_lib.labs import Lab


@dataclass(frozen=True)
class Grade:
    """What the gradebook holds on one hand-in; `waiting` counts the points that an instructor gives by hand."""

    student: str
    score: float
    max_score: float
    waiting: float
    report: Path
    feedback: Path
    error: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "student": self.student,
            "score": self.score,
            "max_score": self.max_score,
            "waiting_for_instructor": self.waiting,
            "report": str(self.report),
            "feedback": str(self.feedback),
            "error": self.error,
        }


@dataclass(frozen=True)
class Classroom:
    """Hand-ins under ``WORK/submitted/STUDENT/LAB/``, as nbgrader lays them out.

    Attributes:
        root: the course's folder.
        work: folder of hand-ins, gradebook, reports and feedback, relative to `root`.
        trusted: grade without the sandbox; for the course's own files only.
        bench: fields of `course_lib.labs.Bench` that differ from the default.
        limits: settings of `course_lib.grading.kernel.SandboxedExecute` that differ from the default, such as ``timeout`` (of
            one cell, in seconds) and ``total_timeout_s``.
    """

    root: Path
    work: str = "classroom"
    trusted: bool = False
    bench: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, Any] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return self.root / self.work

    def students(self, lab: Lab) -> list[str]:
        """Everybody who handed something in."""
        return sorted(path.parent.name for path in (self.folder / "submitted").glob(f"*/{lab.name}") if path.is_dir())

    def hand_in(self, student: str, lab: Lab, source: Path) -> None:
        """Put a folder into the classroom as this student's hand-in."""
        target = self.folder / "submitted" / student / lab.name
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target, symlinks=True)

    def grade(self, lab: Lab, students: list[str]) -> list[Grade]:
        """Autograde, write feedback, and read the gradebook.

        Raises:
            SandboxMissing: no sandbox works here and the classroom is not `trusted`.
            CourseError: the lab's solution cannot be registered with nbgrader.
        """
        from course_lib.grading import sandbox

        if not self.trusted:
            sandbox.require()
        self.folder.mkdir(parents=True, exist_ok=True)
        warnings.filterwarnings("ignore", message="Object of type .* not in session", module="nbgrader")
        api = self._api()
        self._register(api, lab)
        errors = {}
        for student in students:
            done = api.autograde(lab.name, student)
            if done["success"]:
                done = api.generate_feedback(lab.name, student)
            errors[student] = "" if done["success"] else _reason(done)
        return [self._grade(lab, student, errors[student]) for student in students]

    def _api(self) -> Any:
        from nbgrader.apps.api import NbGraderAPI
        from nbgrader.coursedir import CourseDirectory
        from traitlets.config import Config

        from course_lib.grading.nbgrader_bridge import configure

        config = Config()
        configure(config, root=self.root, work=self.work, trusted=self.trusted)
        config.GradeArtefacts.bench = dict(self.bench)
        config.SandboxedExecute.update(self.limits)
        config.CourseDirectory.release_directory = f"{self.work}/release"  # labs/ changes with `course release` only
        log = logging.getLogger("course.nbgrader")
        if not log.handlers:
            log.addHandler(logging.FileHandler(self.folder / "nbgrader.log"))
            log.propagate = False
            log.setLevel(logging.INFO)
        api = NbGraderAPI(CourseDirectory(config=config), config=config)
        api.log = log
        return api

    def _register(self, api: Any, lab: Lab) -> None:
        done = api.generate_assignment(lab.name)
        if not done["success"]:
            raise CourseError(f"nbgrader cannot read the solution of {lab.name}: {_reason(done)}")

    def _grade(self, lab: Lab, student: str, error: str) -> Grade:
        from nbgrader.api import Gradebook, MissingEntry

        ids = {task.id for task in lab.tasks}
        score = waiting = 0.0
        with Gradebook(f"sqlite:///{self.folder / 'gradebook.db'}") as gradebook:
            try:
                submission = gradebook.find_submission(lab.name, student)
                for grade in (grade for notebook in submission.notebooks for grade in notebook.grades):
                    if grade.name in ids:
                        score += grade.score
                    if grade.needs_manual_grade:
                        waiting += grade.max_score
            except MissingEntry:
                error = error or "the gradebook has no such submission"
        return Grade(
            student=student,
            score=score,
            max_score=sum(task.points for task in lab.tasks),
            waiting=waiting,
            report=self.folder / "reports" / student / f"{lab.name}.html",
            feedback=self.folder / "feedback" / student / lab.name / f"{lab.name}.html",
            error=error,
        )


def _reason(done: Mapping[str, Any]) -> str:
    """The last line of nbgrader's log or traceback that says something."""
    lines = [line.strip() for text in (done.get("error"), done.get("log")) for line in (text or "").splitlines()]
    return next((line for line in reversed(lines) if line), "no reason given")
