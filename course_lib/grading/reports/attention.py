"""Who needs the instructor, as short as it can be: one row for each reason, with everybody whom it concerns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from course_lib.grading.batch import intake
from course_lib.grading.integrity import matches
from course_lib.grading.judge.review import UNGRADED
from course_lib.grading.reports.class_report import ClassReport

NAMED = 6  # of those whom a reason concerns, so many are named


@dataclass(frozen=True)
class Need:
    """One reason to look.

    Attributes:
        who: ids of students, or a rejected folder's name as it is shown.
        why: in one line.
        open: points that a review can still add, of all of them together.
    """

    who: tuple[str, ...]
    why: str
    open: float = 0.0


def sections(report: ClassReport) -> dict[str, tuple[Need, ...]]:
    """Every reason, by the title of its section."""
    return {
        "Not graded": not_graded(report),
        "Graded in part": in_part(report),
        "Notes on files": noted(report),
        "Points changed since the last grading": changed(report),
        "To review": to_review(report),
    }


def not_graded(report: ClassReport) -> tuple[Need, ...]:
    """Folders that cannot be graded, submissions whose grading failed, and submissions that have not been graded yet."""
    rejected = [Need((one.shown,), one.reason) for one in report.rejected]
    yet = f"not graded yet: run `course grade {report.lab}`"
    return (*rejected, *_by_reason((student, report.reasons.get(student, yet), 0.0) for student in report.ungraded))


def in_part(report: ClassReport) -> tuple[Need, ...]:
    """Submissions that were graded without something that should be there."""
    found = ((one.student, report.reasons.get(one.student, ""), 0.0) for one in report.submissions)
    return _by_reason(row for row in found if row[1])


def noted(report: ClassReport) -> tuple[Need, ...]:
    """What was taken under another name, filled in from a notebook, or differs from what the notebook writes now."""
    return _by_reason((one.student, line, 0.0) for one in report.submissions for line in one.notes)


def unlisted(report: ClassReport) -> tuple[Need, ...]:
    """Submissions whose ids are not on the class list."""
    return tuple(
        Need((name,), "this id is not on the class list" + (f": did you mean {intake.shown(meant)}?" if meant else ""))
        for name, meant in report.unlisted.items()
    )


def changed(report: ClassReport) -> tuple[Need, ...]:
    """Submissions whose points differ from those of the grading before."""
    return tuple(Need((one.student,), spelled(one.changed)) for one in report.submissions if one.changed)


def spelled(changed: Mapping[str, tuple[float, float]]) -> str:
    """The tasks of `Verdict.points_changed` with their points, such as "speed 2 to 4"."""
    return ", ".join(f"{task} {before:g} to {now:g}" for task, (before, now) in changed.items())


def to_review(report: ClassReport) -> tuple[Need, ...]:
    """Reasons for a review. What only waits for its points, such as a written question, comes last."""
    rows = [(one.student, reason) for one in report.to_review for reason in one.review.reasons]
    rows.sort(key=lambda row: row[1].code == UNGRADED)
    return (
        *unlisted(report),
        *similar(report),
        *shared_instances(report),
        *_by_reason((student, reason.text, reason.open) for student, reason in rows),
    )


def similar(report: ClassReport) -> tuple[Need, ...]:
    """Submissions that have most of their own work in common: a reason to look at both sides, and never a change of points."""
    of_class = {one.student for one in report.submissions}
    why = "most of one submission is in the other: compare both sides under Similar submissions, then ask"
    return tuple(Need(group, why) for group in matches.groups(report.similar, of_class))


def shared_instances(report: ClassReport) -> tuple[Need, ...]:
    """Submissions with one id in their answer files, or with the id of another learner."""
    return tuple(
        Need(
            students,
            f"their answers are to the instance of {intake.shown(learner)}: two submissions of one instance, or a mistyped id",
        )
        for learner, students in report.shared_instances.items()
    )


def _by_reason(rows: Iterator[tuple[str, str, float]]) -> tuple[Need, ...]:
    found: dict[str, list[tuple[str, float]]] = {}
    for who, why, points in rows:
        found.setdefault(why, []).append((who, points))
    return tuple(
        Need(tuple(who for who, _ in several), why, sum(points for _, points in several)) for why, several in found.items()
    )
