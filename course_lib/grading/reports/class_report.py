"""A class on one lab, read from the gradebook and the verdicts: who reached what, who needs an instructor, and who copied."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from course_lib.benchmark import Interval
from course_lib.errors import CourseError
from course_lib.grading.batch.classroom import Classroom
from course_lib.grading.batch.grade import noted
from course_lib.grading.batch.intake import Rejected
from course_lib.grading.integrity import copies
from course_lib.grading.integrity.matches import Match
from course_lib.grading.judge.review import UNGRADED, Points, Review, Reviewed
from course_lib.grading.judge.verdict import Verdict
from course_lib.grading.nbgrader import gradebook
from course_lib.labs import Lab
from course_lib.labs.framework.criteria import Tier

TIERS = (*(tier.value for tier in Tier), UNGRADED)


@dataclass(frozen=True)
class TaskResult:
    """One task of one submission: the verdict's tier (``"ungraded"`` where the examiner failed) and the gradebook's points."""

    id: str
    title: str
    tier: str
    points: float
    max_points: float
    open: float = 0.0  # points that a review can still add

    def __str__(self) -> str:
        return Points(self.points, self.open, self.max_points).in_cell


@dataclass(frozen=True)
class Submission(Reviewed):
    """One graded submission.

    Attributes:
        review: all points of the gradebook, those given by hand included, before the penalty; and why an instructor has to look.
        penalty: points taken off because it was late.
        speedup: over the race's baseline, None where nothing was raced.
        of_reference: speed relative to the reference of the same session, None where none was raced. A machine that is slow on the
            day slows both, so this compares submissions that were graded at different times.
        notes: lines on the files that were judged, such as "Model.ONNX was taken as model.onnx".
        changed: see `Verdict.points_changed`.
    """

    student: str
    tasks: tuple[TaskResult, ...]
    review: Review
    penalty: float = 0.0
    late_s: float = 0.0
    first_name: str = ""
    last_name: str = ""
    email: str = ""
    speedup: Interval | None = None
    of_reference: Interval | None = None
    notes: tuple[str, ...] = ()
    changed: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def final(self) -> float:
        """What counts: the score less the penalty."""
        return max(0.0, self.score - self.penalty)

    @property
    def ungraded(self) -> bool:
        """Whether the grader failed before it could judge a task, and no person has given points."""
        return all(task.tier == UNGRADED and task.open for task in self.tasks)

    @property
    def judged(self) -> float:
        """Points of the lab's tasks alone, without written questions and penalty."""
        return sum(task.points for task in self.tasks)

    @property
    def written(self) -> Points:
        """Points of the written questions."""
        still_open = self.review.points.open - sum(task.open for task in self.tasks)
        return Points(self.score - self.judged, still_open, self.max_score - sum(task.max_points for task in self.tasks))


@dataclass(frozen=True)
class ClassReport:
    """A class on one lab.

    Attributes:
        ungraded: who submitted but is not in the gradebook yet.
        missing: who is in the gradebook and submitted nothing.
        baseline: what speedups are over; "" where nothing was raced.
        similar: submissions of which one is mostly in the other, those with the most in common first.
        shared_instances: who submitted under one id, or under another learner's id, by that id.
        unlisted: ids that are not on the class list, each with the listed id that it resembles, "" for none.
        reasons: why a submission was graded without something that should be there, or not at all, by student.
    """

    lab: str
    title: str
    submissions: tuple[Submission, ...]
    ungraded: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    baseline: str = ""
    similar: tuple[Match, ...] = ()
    shared_instances: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    rejected: tuple[Rejected, ...] = ()
    unlisted: Mapping[str, str] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)

    @property
    def to_review(self) -> tuple[Submission, ...]:
        """Submissions that an instructor has to look at."""
        return tuple(one for one in self.submissions if one.review.needed)

    @property
    def by_need(self) -> tuple[Submission, ...]:
        """Submissions that need a decision first, those with the most open points before others; then all others by name."""
        return tuple(sorted(self.submissions, key=lambda one: (not one.review.needed, -one.review.points.open, one.student)))

    @property
    def late(self) -> tuple[Submission, ...]:
        """Submissions after the due date, with or without a penalty."""
        return tuple(one for one in self.submissions if one.late_s > 0)

    def difficulty(self) -> dict[str, dict[str, float]]:
        """For each task the share of submissions in each of `TIERS`, by the task's title."""
        counts: dict[str, Counter[str]] = {}
        for task in (task for one in self.submissions for task in one.tasks):
            counts.setdefault(task.title, Counter())[task.tier] += 1
        return {title: {tier: found[tier] / found.total() for tier in TIERS} for title, found in counts.items()}

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        known = asdict(replace(self, similar=()))
        known["similar"] = [
            {"students": list(one.students), "reading": one.reading, "share": one.share} for one in self.similar
        ]
        for row, one in zip(known["submissions"], self.submissions, strict=True):
            row |= {"review": one.review.to_json(), "score": one.score, "max_score": one.max_score, "final": one.final}
        return known | {"difficulty": self.difficulty(), "rejected": [one.to_json() for one in self.rejected]}


def check_graded(lab: Lab, room: Classroom) -> None:
    """Raises CourseError if a classroom has graded nothing of a lab."""
    from nbgrader.api import MissingEntry

    if (room.folder / "gradebook.db").is_file():
        with gradebook.opened(room.folder) as book, suppress(MissingEntry):
            if book.assignment_submissions(lab.name):
                return
    raise CourseError(f"nothing of {lab.name} was graded in {room.folder}: `course grade {lab.name}` comes first")


def read(lab: Lab, room: Classroom) -> ClassReport:
    """Collect what is known of a lab.

    Raises:
        CourseError: nothing of this lab was graded here, or a verdict cannot be read.
    """
    check_graded(lab, room)
    with gradebook.opened(room.folder) as book:
        rows = sorted(book.assignment_submissions(lab.name), key=lambda one: one.student.id)
        verdicts = {one.student.id: room.verdict(lab, one.student.id) for one in rows}
        submissions = tuple(_submission(lab, one, verdicts[one.student.id]) for one in rows)
        known = {student.id for student in book.students}
        unlisted = gradebook.unlisted(book.students, [one.student for one in submissions])
    graded = {one.student for one in submissions}
    intake = room.intake(lab)
    handed_in = set(intake.students)
    races = [verdict.comparison.baseline for verdict in verdicts.values() if verdict and verdict.comparison]
    return ClassReport(
        lab.name,
        lab.title,
        submissions,
        ungraded=tuple(sorted(handed_in - graded)),
        missing=tuple(sorted(known - graded - handed_in)),
        baseline=races[0] if races else "",
        similar=copies.find(lab, room, sorted(graded)),
        shared_instances=copies.shared_instances(lab, room, graded),
        rejected=intake.rejected,
        unlisted=unlisted,
        reasons={name: reason for name in sorted(graded | handed_in) if (reason := noted(room.folder, name, lab))},
    )


def _submission(lab: Lab, row: Any, verdict: Verdict | None) -> Submission:
    """The row of nbgrader's gradebook with the verdict."""
    cells = gradebook.cells(row)
    points = {cell.name: cell.points for cell in cells}
    tiers = {outcome.task.id: outcome.tier for outcome in verdict.outcomes} if verdict else {}
    review = Review.of(lab, verdict, cells)
    return Submission(
        row.student.id,
        tuple(
            TaskResult(t.id, t.title, tiers.get(t.id, UNGRADED), points.get(t.id, 0.0), t.points, review.open.get(t.id, 0.0))
            for t in lab.tasks
        ),
        review=review,
        penalty=row.late_submission_penalty,
        late_s=row.total_seconds_late,
        first_name=row.student.first_name or "",
        last_name=row.student.last_name or "",
        email=row.student.email or "",
        speedup=verdict.comparison.speedups.get("yours") if verdict and verdict.comparison else None,
        of_reference=verdict.of_reference if verdict else None,
        notes=tuple(verdict.provenance.get("notes", ())) if verdict else (),
        changed=verdict.points_changed() if verdict else {},
    )
