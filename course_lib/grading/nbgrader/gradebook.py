"""nbgrader's gradebook: write a verdict's points, and read the data of a submission."""

from __future__ import annotations

import difflib
import shutil
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from course_lib import labs
from course_lib.errors import CourseError
from course_lib.grading.batch import late
from course_lib.grading.judge.review import Cell, Review
from course_lib.grading.judge.verdict import Verdict
from course_lib.labs import Lab


def write_template(target: Path, classroom: Path, source: Path, lab: Lab) -> None:
    """Write the lab's release and sources, and a gradebook with the lab and its due date, without students.

    Args:
        target: an empty folder.
        classroom: folder with ``gradebook.db`` and ``release/``, where nbgrader has registered the lab.
        source: the course's folder of solutions.
        lab: which.
    """
    from nbgrader.api import Gradebook

    work = target / "classroom"
    work.mkdir()
    shutil.copyfile(classroom / "gradebook.db", work / "gradebook.db")
    with Gradebook(f"sqlite:///{work / 'gradebook.db'}") as book:
        for student in book.students:
            book.remove_student(student.id)
    shutil.copytree(classroom / "release" / lab.name, work / "release" / lab.name)
    ignored = shutil.ignore_patterns(*lab.artifacts, ".ipynb_checkpoints", "*.ipynb")
    shutil.copytree(source / lab.name, target / "solutions" / lab.name, ignore=ignored)


def write_points(grades: Iterable[Any], lab: Lab, verdict: Verdict) -> None:
    """Set a submission's points of the lab's tasks, and mark the cells that an instructor must review. Points given by hand remain.

    Args:
        grades: all grades of one notebook in nbgrader's gradebook.

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

    Args:
        students: nbgrader's, of the gradebook.
        submitted: ids of submissions.
    """
    listed = [student.id for student in students if student.first_name or student.last_name or student.email]
    folded = {name.casefold(): name for name in listed}
    meant = {name: difflib.get_close_matches(name.casefold(), folded, n=1) for name in submitted if name not in listed}
    return {name: folded[close[0]] if close else "" for name, close in meant.items()} if listed else {}


def entry(path: Path, lab: Lab, student: str) -> dict[str, object]:
    """The data of the gradebook at `path` on a submission, besides the verdict, as plain JSON values; empty if there is none."""
    from nbgrader.api import Gradebook, MissingEntry

    tasks = {task.id for task in lab.tasks}
    with Gradebook(f"sqlite:///{path}") as book:
        try:
            submission = book.find_submission(lab.name, student)
        except MissingEntry:
            return {}
        return {
            "timestamp": submission.timestamp.isoformat() if submission.timestamp else None,
            "notebooks": {
                notebook.name: {
                    "grades": {
                        grade.name: {"auto_score": grade.auto_score, "needs_manual_grade": grade.needs_manual_grade}
                        for grade in notebook.grades
                        if grade.name not in tasks
                    },
                    "comments": {comment.name: comment.auto_comment for comment in notebook.comments},
                }
                for notebook in submission.notebooks
            },
        }


def record(
    path: Path,
    verdict: Verdict,
    student: str,
    found: Mapping[str, Any],
    settings: Mapping[str, Mapping[str, Any]] | None = None,
) -> bool:
    """Write a verdict and an `entry` into the gradebook at `path`. Points and comments given by hand remain.

    Late penalties are computed here and not taken from the entry, because only this gradebook has extensions and points by hand.

    Args:
        settings: nbgrader's configuration by class, for `late.LatePenalty`.

    Returns:
        Whether the page for the learner needs what only this gradebook has: points or a comment by hand, or a late penalty.
    """
    from nbgrader.api import Gradebook
    from traitlets.config import Config

    by_hand, lab = False, labs.find(verdict.lab)
    with Gradebook(f"sqlite:///{path}") as book:
        book.update_or_create_student(student)
        time = {"timestamp": datetime.fromisoformat(found["timestamp"])} if found["timestamp"] else {}
        submission = book.update_or_create_submission(lab.name, student, **time)
        for notebook in submission.notebooks:
            if notebook.name == lab.name:
                write_points(notebook.grades, lab, verdict)
            new = found["notebooks"].get(notebook.name, {"grades": {}, "comments": {}})
            for grade in notebook.grades:
                if grade.name in new["grades"]:
                    grade.auto_score = new["grades"][grade.name]["auto_score"]
                    waits = new["grades"][grade.name]["needs_manual_grade"]
                    grade.needs_manual_grade = waits or grade.manual_score is not None
                by_hand = by_hand or grade.manual_score is not None
            for comment in notebook.comments:
                comment.auto_comment = new["comments"].get(comment.name, comment.auto_comment)
                by_hand = by_hand or comment.manual_comment is not None
        book.db.commit()
        late.charge(submission, Config(dict(settings or {})))
        book.db.commit()
        return by_hand or bool(submission.late_submission_penalty)


def charge(path: Path, lab: Lab, settings: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[float, float]]:
    """Compute the late penalties of a lab again: points by hand, the due date or an extension may be newer than they are.

    Args:
        path: the gradebook.
        settings: see `record`.

    Returns:
        The penalties that changed, before and after, by student.
    """
    from nbgrader.api import Gradebook
    from traitlets.config import Config

    changed: dict[str, tuple[float, float]] = {}
    with Gradebook(f"sqlite:///{path}") as book:
        for submission in book.assignment_submissions(lab.name):
            before = submission.late_submission_penalty or 0.0
            late.charge(submission, Config(dict(settings)))
            book.db.commit()
            after = submission.late_submission_penalty or 0.0
            if round(before, 6) != round(after, 6):
                changed[submission.student.id] = (before, after)
    return changed
