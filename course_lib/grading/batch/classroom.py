"""A classroom: the folder of submissions, the gradebook next to it, and the steps from one to the other."""

from __future__ import annotations

import errno
import json
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from course_lib._util import scratch
from course_lib._util.files import remove_tree, write_atomically
from course_lib._util.plain_text import plain
from course_lib.errors import CourseError
from course_lib.grading.batch.archive import MOST_BYTES, MOST_FILES, Selection
from course_lib.grading.batch.collection import collected, submission_folder
from course_lib.grading.batch.grade import Grade, note
from course_lib.grading.batch.intake import TIMESTAMP, Intake, id_problem, shown
from course_lib.grading.batch.journal import Journal
from course_lib.grading.batch.submission import GRADED, WORK, Job, Result
from course_lib.grading.judge.review import Review
from course_lib.grading.judge.verdict import Verdict, verdict_file
from course_lib.labs import Lab

if TYPE_CHECKING:
    from traitlets.config import Config

_OTHER_BYTES = 32 << 20  # of files that no lab asks for
# Faults of the machine. They end the batch, which the same command continues; any other fault costs one submission.
_MACHINE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENOMEM)


def _is_link(path: Path) -> bool:
    """Whether a path is a symbolic link, or one of several names of a file."""
    return path.is_symlink() or (path.is_file() and path.stat().st_nlink > 1)


@dataclass(frozen=True)
class Classroom:
    """Submissions under ``WORK/submitted/STUDENT/LAB/``, as nbgrader lays them out.

    Attributes:
        root: the course's folder.
        work: folder of submissions, gradebook, reports and feedback, relative to `root`.
        trusted: grade without the sandbox; for the course's own files only.
        examiner, limits: settings of `Examiner` and of `SandboxedExecute` that differ from the default.
    """

    root: Path
    work: str = WORK
    trusted: bool = False
    examiner: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, Any] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """The folder of submissions, grades and feedback."""
        return self.root / self.work

    def intake(self, lab: Lab) -> Intake:
        """The students who submitted, and folders that cannot be graded, with reasons."""
        return collected(self.folder / "submitted", lab.name)

    def students(self, lab: Lab) -> list[str]:
        """The students whose submissions can be graded."""
        return list(self.intake(lab).students)

    def new(self, lab: Lab, students: list[str]) -> list[str]:
        """Those whose submission was not graded yet, has changed since it was graded, or could not be judged."""
        return [student for student in students if not self._is_judged(lab, student)]

    def _is_judged(self, lab: Lab, student: str) -> bool:
        try:
            _, digest, _ = self._submitted(lab, student)
            verdict = self.verdict(lab, student)
        except (OSError, CourseError):
            return False
        judged = verdict is not None and verdict.is_complete and verdict.provenance.get("submission") == digest
        graded = self.folder / GRADED / student / lab.name / f"{lab.name}.ipynb"  # formgrader's Autograde removes it first
        return judged and graded.is_file()

    def submit(self, student: str, lab: Lab, source: Path) -> None:
        """Put a folder into the classroom as this student's submission."""
        target = self.folder / "submitted" / student / lab.name
        remove_tree(target)
        shutil.copytree(source, target, symlinks=True)

    def grade(
        self,
        lab: Lab,
        students: list[str],
        *,
        workers: int = 1,
        scheduler: str | None = None,
        ended: Callable[[str, Grade | None], None] = lambda student, grade: None,
    ) -> list[Grade]:
        """Grade each submission in its own folder, and write the results into the gradebook, here and one by one.

        After an interruption the same call continues: submissions that are already in the gradebook are not graded again. No submission
        stops another: one that cannot be graded or recorded is a `Grade` with an error.

        Args:
            workers, scheduler: see `farm.graded`.
            ended: called with each student and grade when it is ready; without a grade if an interrupted batch already had it.

        Raises:
            SandboxMissing: no sandbox works here and the classroom is not `trusted`.
            CourseError: the lab's solution cannot be registered with nbgrader, another process grades the lab, or the scheduler
                does not answer.
            OSError: the machine cannot continue, for example because the disk is full.
        """
        from course_lib.grading.batch import farm
        from course_lib.grading.isolation import sandbox

        if not self.trusted and scheduler is None:
            sandbox.require()
        self.folder.mkdir(parents=True, exist_ok=True)
        journal, errors = Journal(self.folder / "jobs" / lab.name), {student: id_problem(student) for student in students}
        accepted = [student for student in students if not errors[student]]
        with journal.held(), scratch.owned():
            jobs = self._jobs(lab, accepted, self._registered(lab), journal, errors, ended)
            for result in farm.graded(jobs, workers=workers, scheduler=scheduler):
                errors[result.student] = self._settled(lab, result, journal)
                ended(result.student, self._grade(lab, result.student, errors[result.student]))
            journal.finish(accepted)
        return [self._grade(lab, student, errors[student]) for student in students]

    def _jobs(
        self,
        lab: Lab,
        students: list[str],
        released: Selection,
        journal: Journal,
        errors: dict[str, str],
        ended: Callable[[str, Grade | None], None],
    ) -> Iterator[Job]:
        """The submissions that remain to be graded."""
        batch = secrets.token_hex(8)
        for student in students:
            try:
                files, digest, problem = self._submitted(lab, student)
            except (OSError, CourseError) as error:
                errors[student] = f"the submission cannot be read ({error.strerror if isinstance(error, OSError) else error})"
                note(self.folder, student, lab, errors[student])
                ended(student, self._grade(lab, student, errors[student]))
                continue
            place = files.folder.name
            notes = (f"the folder {shown(place)} was taken as {lab.name}",) if place not in (lab.name, student) else ()
            execution = self.settings["SandboxedExecute"]
            job = Job(lab.name, student, files, released, digest, problem, notes, self.trusted, self.examiner, execution, batch)
            if (why := journal.recorded(student, job.digest)) is not None:
                errors[student] = why
                ended(student, None)
            else:
                yield job

    def _submitted(self, lab: Lab, student: str) -> tuple[Selection, str, str]:
        """A submission's plain files, their digest, and what is wrong with it already."""
        folder = submission_folder(self.folder / "submitted" / student, lab.name)
        if folder is None:
            raise FileNotFoundError(errno.ENOENT, f"there is no folder of {lab.name}")
        notebook = f"{lab.name}.ipynb"
        names = (*lab.artifacts, TIMESTAMP, notebook)  # a notebook with large outputs does not take the place of files
        others = (".",) if folder.parent.name == student else tuple(path.name for path in folder.iterdir() if path.is_file())
        files = Selection(folder, (*names, *others), others=_OTHER_BYTES)
        digest, left_out = files.look()
        if links := [name for name in names if _is_link(folder / name)]:
            return files, digest, f"{', '.join(links)}: a link to a file is not taken, submit a copy of the file"
        if not left_out:
            return files, digest, ""
        listed = ", ".join(left_out[:3]) + (", ..." if len(left_out) > 3 else "")
        limits = f"{MOST_BYTES >> 20} MiB, {_OTHER_BYTES >> 20} of them not asked for, and {MOST_FILES} files with usual names"
        return files, digest, f"left out {listed}: a submission may have {limits}"

    def _settled(self, lab: Lab, result: Result, journal: Journal) -> str:
        """Record a result. Return why it was graded in part or not graded."""
        from sqlalchemy.exc import OperationalError  # a gradebook that is locked or on a full disk

        error = result.error
        try:
            if result.verdict:
                error = "; ".join(filter(None, (error, self._record(lab, result, journal.began()))))
            journal.mark(replace(result, error=error))
        except OperationalError as failed:
            raise CourseError(f"the gradebook cannot be written ({failed.orig}): grade again, the batch continues") from None
        except Exception as failed:  # whatever the files of one submission led to
            if isinstance(failed, OSError) and failed.errno in _MACHINE:
                raise
            reason = plain(f"{type(failed).__name__}: {failed}", 300)
            error = "; ".join(filter(None, (error, f"the result cannot be recorded ({reason})")))
        note(self.folder, result.student, lab, error)
        return error

    def _record(self, lab: Lab, result: Result, began: str) -> str:
        """Write the files, the gradebook and the learner's pages; return what is wrong with a page, or "".

        Args:
            began: when the batch began.
        """
        from course_lib.grading.integrity import signature
        from course_lib.grading.nbgrader import gradebook

        remove_tree(self.folder / GRADED / result.student / lab.name)
        result.files.copy_to(self.folder)
        verdict = Verdict.from_json(result.verdict)
        provenance = {**verdict.provenance, "submission": result.digest, **self._previous(lab, result.student, began)}
        document = {**result.verdict, "provenance": provenance, "student": result.student}
        signed = signature.signed(document, signature.signing_key(self.folder))
        path = verdict_file(self.folder, result.student, lab)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(signed).encode())
        submitted = datetime.fromisoformat(result.submitted) if result.submitted else None
        gradebook.record(
            self.folder,
            lab,
            verdict,
            result.student,
            unanswered=result.unanswered,
            submitted=submitted,
            settings=self.settings,
        )
        path.with_suffix(".html").unlink(missing_ok=True)
        self.update_reports(lab, [result.student])
        return self._write_feedback(lab, result.student)

    def _write_feedback(self, lab: Lab, student: str) -> str:
        """Write the graded notebook as a page and return what is wrong with it, or ""."""
        from nbgrader.converters import GenerateFeedback

        from course_lib.grading.nbgrader.bridge import convert

        folder = self.folder / "feedback" / student / lab.name
        remove_tree(folder)
        failed = convert(GenerateFeedback, lab.name, self._nbgrader(), self.folder, student)
        for path in folder.glob("*"):
            if path.name != f"{lab.name}.html":  # nbgrader copies what was submitted there, pages with scripts included
                remove_tree(path)
        return f"nbgrader could not show the notebook ({failed}): there is no page" if failed else ""

    def _previous(self, lab: Lab, student: str, began: str) -> dict[str, Any]:
        """The points of the last grading in an earlier batch, for the provenance; empty if there is none."""
        try:
            before = self.verdict(lab, student)
        except CourseError:  # the file was damaged
            return {}
        if before is None or before.fault:
            return {}
        if str(before.provenance.get("date")) > began:  # this batch was interrupted while it recorded this submission
            return {"previous": before.provenance["previous"]} if "previous" in before.provenance else {}
        kept = {name: before.provenance.get(name) for name in ("date", "course", "commit")}
        return {"previous": {**kept, "points": {one.task.id: one.points for one in before.outcomes}}}

    def update_reports(self, lab: Lab, students: Iterable[str]) -> None:
        """Write the reports that are missing, and those whose points differ from the gradebook's."""
        from course_lib.grading.nbgrader import gradebook
        from course_lib.grading.reports import report

        with gradebook.opened(self.folder) as book:
            for student in students:
                path, verdict = verdict_file(self.folder, student, lab).with_suffix(".html"), self.verdict(lab, student)
                if verdict is None:
                    continue
                submission = book.find_submission(lab.name, student)
                cells, penalty = gradebook.cells(submission), submission.late_submission_penalty or 0.0
                points = report.points(verdict, cells, penalty)
                if not path.is_file() or points not in path.read_text(encoding="utf-8"):
                    write_atomically(path, report.page(lab, verdict, student, cells, penalty).encode())

    @cached_property
    def settings(self) -> dict[str, dict[str, Any]]:
        """What an instructor has set for the classes that grade, see `bridge.own_settings`."""
        from course_lib.grading.nbgrader.bridge import own_settings

        settings = own_settings(self.root)
        return {**settings, "SandboxedExecute": {**settings.get("SandboxedExecute", {}), **self.limits}}

    def _nbgrader(self) -> Config:
        """nbgrader's configuration for this classroom."""
        from traitlets.config import Config

        from course_lib.grading.nbgrader.bridge import configure

        config: Any = Config()
        configure(config, root=self.root, work=self.work)
        config.CourseDirectory.release_directory = f"{self.work}/release"  # labs/ changes with `course release` only
        return config

    def _registered(self, lab: Lab) -> Selection:
        """Tell nbgrader of the lab, and return what learners get."""
        from nbgrader.converters import GenerateAssignment

        from course_lib.grading.nbgrader import learner_version
        from course_lib.grading.nbgrader.bridge import convert

        learner_version.check_grade_cells(lab, self.root)
        if failed := convert(GenerateAssignment, lab.name, self._nbgrader(), self.folder):
            raise CourseError(f"nbgrader cannot read the solution of {lab.name}: {failed}")
        return Selection(self.folder / "release" / lab.name)  # as the solution is now

    def verdict(self, lab: Lab, student: str) -> Verdict | None:
        """The last written verdict, None before the first one.

        Raises:
            CourseError: the file is something else.
        """
        path = verdict_file(self.folder, student, lab)
        return Verdict.load(path) if path.is_file() else None

    def _grade(self, lab: Lab, student: str, error: str) -> Grade:
        from nbgrader.api import MissingEntry

        from course_lib.grading.nbgrader import gradebook

        cells, verdict = None, None
        if not id_problem(student):
            verdict = self.verdict(lab, student)
            with gradebook.opened(self.folder) as book:
                try:
                    cells = gradebook.cells(book.find_submission(lab.name, student))
                except MissingEntry:
                    error = error or "the gradebook has no such submission"
        return Grade(
            student=student,
            review=Review.of(lab, verdict, cells),
            report=self.folder / "reports" / student / f"{lab.name}.html",
            feedback=self.folder / "feedback" / student / lab.name / f"{lab.name}.html",
            error=error,
            notes=tuple(verdict.provenance.get("notes", ())) if verdict else (),
            changed=verdict.points_changed() if verdict else {},
        )
