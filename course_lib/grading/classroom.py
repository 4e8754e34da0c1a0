"""A classroom: the folder of hand-ins, the gradebook beside it, and the steps from one to the other."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from course_lib.errors import CourseError
from course_lib.files import remove_tree, write_atomically
from course_lib.grading.hand_in import WORK, Job, Result, reason
from course_lib.grading.journal import Journal
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
        limits: settings of `course_lib.grading.kernel.SandboxedExecute` that differ from ``nbgrader_config.py``, such as
            ``timeout`` (of one cell, in seconds) and ``total_timeout_s``.
    """

    root: Path
    work: str = WORK
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
        remove_tree(target)
        shutil.copytree(source, target, symlinks=True)

    def grade(
        self, lab: Lab, students: list[str], *, workers: int = 1, scheduler: str | None = None, progress: bool = False
    ) -> list[Grade]:
        """Grade each hand-in in a folder of its own, and write what came of it into the gradebook, here and one by one.

        After an interruption the same call goes on where it was: what is in the gradebook already is not graded again.

        Args:
            lab: which.
            students: whose.
            workers, scheduler: see `farm.graded`.
            progress: show a bar.

        Raises:
            SandboxMissing: no sandbox works here and the classroom is not `trusted`.
            CourseError: the lab's solution cannot be registered with nbgrader, another process grades the lab, or the scheduler
                does not answer.
        """
        from course_lib.bars import track
        from course_lib.grading import farm, sandbox

        if not self.trusted and scheduler is None:
            sandbox.require()
        self.folder.mkdir(parents=True, exist_ok=True)
        journal, errors = Journal(self.folder / "jobs" / lab.name), dict.fromkeys(students, "")
        with journal.held():
            course = self._registered(lab)
            results = farm.graded(self._jobs(lab, students, course, journal, errors), workers=workers, scheduler=scheduler)
            for result in track(results, f"grading {lab.name}", total=len(students), shown=progress):
                errors[result.student] = result.error
                if result.entry:
                    journal.keep(result)
                    self._record(lab, result, journal)
            journal.finish(students)
        return [self._grade(lab, student, errors[student]) for student in students]

    def _jobs(self, lab: Lab, students: list[str], course: bytes, journal: Journal, errors: dict[str, str]) -> Iterator[Job]:
        """What is left to do; what an interrupted batch has done is only recorded."""
        for student in students:
            packed, said = self._packed(lab, student)
            job = Job(lab.name, student, packed, course, said, self.trusted, self.bench, self._settings)
            if kept := journal.kept(student, job.digest):
                errors[student] = kept.error
                self._record(lab, kept, journal)
            elif (error := journal.recorded(student, job.digest)) is not None:
                errors[student] = error
            else:
                yield job

    def _packed(self, lab: Lab, student: str) -> tuple[bytes, str]:
        """A hand-in's plain files, and what is wrong with it already."""
        from course_lib.grading import parcel

        folder = self.folder / "submitted" / student / lab.name
        if folder.is_symlink() or folder.parent.is_symlink():  # to a neighbour's, perhaps
            return parcel.pack(folder, ()).content, "the folder is a link: nothing in it was taken"
        packed = parcel.pack(folder, (f"{lab.name}.ipynb", "timestamp.txt", *lab.artefacts, "."))
        if not packed.left_out:
            return packed.content, ""
        names = ", ".join(packed.left_out[:3]) + (", ..." if len(packed.left_out) > 3 else "")
        limits = f"{parcel.MOST_BYTES >> 20} MiB, {parcel.MOST_FILES} files with usual names"
        return packed.content, f"left out {names}: a hand-in may have {limits}"

    def _record(self, lab: Lab, result: Result, journal: Journal) -> None:
        """Files, then gradebook, then the mark that both are done. Done twice it comes to the same."""
        from course_lib.grading import gradebook, parcel, signature

        for kind in ("autograded", "feedback"):
            remove_tree(self.folder / kind / result.student / lab.name)
        parcel.unpack(result.files, self.folder)
        verdict = self.folder / "reports" / result.student / f"{lab.name}.json"
        known = signature.signed(json.loads(verdict.read_bytes()), signature.signing_key(self.folder))
        write_atomically(verdict, json.dumps(known).encode())
        if gradebook.record(self.folder / "gradebook.db", lab, result.student, result.entry, self._settings):
            self._api().generate_feedback(lab.name, result.student)  # with what an instructor gave by hand
        journal.mark(result)

    @cached_property
    def _settings(self) -> dict[str, dict[str, Any]]:
        from course_lib.grading.nbgrader_bridge import own_settings

        settings = own_settings(self.root)
        return {**settings, "SandboxedExecute": {**settings.get("SandboxedExecute", {}), **self.limits}}

    def _api(self) -> Any:
        from course_lib.grading.nbgrader_bridge import api

        log = logging.FileHandler(self.folder / "nbgrader.log", delay=True)
        return api(self.root, self.work, trusted=self.trusted, bench=self.bench, settings=self._settings, log=log)

    def _registered(self, lab: Lab) -> bytes:
        """Tell nbgrader of the lab, and pack what grading it needs."""
        from course_lib.grading import gradebook

        done = self._api().generate_assignment(lab.name)
        if not done["success"]:
            raise CourseError(f"nbgrader cannot read the solution of {lab.name}: {reason(done)}")
        return gradebook.template(self.folder, self.root / "solutions", lab)

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
