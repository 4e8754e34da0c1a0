"""nbgrader's gradebook, the only one: write a verdict's points with late penalties, and read the data of a submission."""

from __future__ import annotations

import difflib
import math
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nbgrader.plugins import LateSubmissionPlugin
from traitlets import Enum, Float
from traitlets.config import Config

from course_lib.errors import CourseError
from course_lib.grading.judge.review import Cell, Review
from course_lib.grading.judge.verdict import Verdict
from course_lib.labs import Lab

if TYPE_CHECKING:
    from nbgrader.api import Gradebook

_DAY_S = 86_400


class LatePenalty(LateSubmissionPlugin):
    """Points that nbgrader subtracts from a late submission, default 0; set in ``nbgrader_config.py``: ``c.LatePenalty.per_day = 10``."""

    per_day = Float(0.0, min=0, help="subtracted for every day that has begun after the due date").tag(config=True)
    unit = Enum(("percent", "points"), "percent", help="percent of the points reached, or points").tag(config=True)
    most = Float(math.inf, min=0, help="never more than this, in the same unit").tag(config=True)

    def late_submission_penalty(self, student_id: str, score: float, total_seconds_late: float) -> float:
        """Points to subtract, at most the score. The gradebook has subtracted extensions from the lateness."""
        taken = min(self.per_day * math.ceil(total_seconds_late / _DAY_S), self.most)
        return min(taken if self.unit == "points" else score * taken / 100, score)


def address(classroom: Path) -> str:
    """The URL of a classroom's gradebook."""
    return f"sqlite:///{classroom / 'gradebook.db'}"


@contextmanager
def opened(classroom: Path) -> Iterator[Gradebook]:
    """A classroom's gradebook, closed at the end."""
    from nbgrader.api import Gradebook

    with warnings.catch_warnings(), Gradebook(address(classroom)) as book:
        warnings.filterwarnings("ignore", message="Object of type .* not in session", module="nbgrader")  # SQLAlchemy's
        yield book


def write_points(grades: Iterable[Any], lab: Lab, verdict: Verdict) -> None:
    """Set a submission's points of the lab's tasks, and mark the cells that an instructor must review. Points given by hand remain.

    Raises:
        CourseError: the gradebook has other tasks than the lab.
    """
    review, earned = Review.of(lab, verdict), {outcome.task.id: outcome.points for outcome in verdict.outcomes}
    found = {grade.name: grade for grade in grades}
    for task in lab.tasks:
        if task.id not in found or found[task.id].max_score != task.points:
            worth = f"is worth {found[task.id].max_score:g}" if task.id in found else "is missing"
            said = f"{task.id} {worth} in the gradebook and {task.points:g} points in the lab"
            raise CourseError(f"{said}: `course release {lab.name}` names the cell to change")
        grade = found[task.id]
        grade.auto_score = earned.get(task.id, 0.0)
        grade.needs_manual_grade = task.id in review.cells or grade.manual_score is not None


def cells(submission: Any) -> list[Cell]:
    """All grade cells of a submission in nbgrader's gradebook."""
    return [
        Cell(grade.name, grade.score, grade.max_score, grade.manual_score is not None, bool(grade.needs_manual_grade))
        for notebook in submission.notebooks
        for grade in notebook.grades
    ]


def unlisted(students: Iterable[Any], submitted: Iterable[str]) -> dict[str, str]:
    """Ids of submissions that are not on the class list, each with the listed id that it resembles ("" for none).

    Grading adds an id that is not listed, without a name. So there is a list if any student has a name or an address, and those who
    have neither are not on it.
    """
    listed = [student.id for student in students if student.first_name or student.last_name or student.email]
    folded = {name.casefold(): name for name in listed}
    meant = {name: difflib.get_close_matches(name.casefold(), folded, n=1) for name in submitted if name not in listed}
    return {name: folded[close[0]] if close else "" for name, close in meant.items()} if listed else {}


def record(
    classroom: Path,
    lab: Lab,
    verdict: Verdict,
    student: str,
    *,
    unanswered: Collection[str],
    submitted: datetime | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    """Write a graded submission, with its late penalty. Points and comments given by hand remain.

    Args:
        unanswered: ids of the cells for a solution without an answer. Their written questions have no points and need no review.
        settings: nbgrader's configuration by class, for `LatePenalty`.
    """
    tasks = {task.id for task in lab.tasks}
    with opened(classroom) as book:
        book.update_or_create_student(student)
        submission = book.update_or_create_submission(
            lab.name, student, timestamp=submitted.replace(tzinfo=None) if submitted else None
        )
        notebook = book.find_submission_notebook(lab.name, lab.name, student)
        write_points(notebook.grades, lab, verdict)
        for grade in notebook.grades:
            if grade.name not in tasks:
                grade.auto_score = 0.0 if grade.name in unanswered else None
                grade.needs_manual_grade = grade.name not in unanswered or grade.manual_score is not None
        for comment in notebook.comments:
            comment.auto_comment = "No response." if comment.name in unanswered else None
        book.db.commit()
        charge_submission(submission, Config(dict(settings or {})))
        book.db.commit()


def charge(classroom: Path, lab: Lab, settings: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[float, float]]:
    """Compute the late penalties of a lab again: points by hand, the due date or an extension may be newer than they are.

    Returns:
        The penalties that changed, before and after, by student.
    """
    changed: dict[str, tuple[float, float]] = {}
    with opened(classroom) as book:
        for submission in book.assignment_submissions(lab.name):
            before = submission.late_submission_penalty or 0.0
            charge_submission(submission, Config(dict(settings)))
            book.db.commit()
            after = submission.late_submission_penalty or 0.0
            if round(before, 6) != round(after, 6):
                changed[submission.student.id] = (before, after)
    return changed


def charge_submission(submission: Any, config: Config) -> None:
    """Compute a submission's penalties from all points in the gradebook. Changes to its grades must be committed before."""
    plugin, late_s = LatePenalty(config=config), submission.total_seconds_late
    for notebook in submission.notebooks:
        penalty = plugin.late_submission_penalty(submission.student.id, notebook.score, late_s)
        notebook.late_submission_penalty = penalty if late_s else None
