"""The page of a class: figures and tables for the instructor, and the leaderboard as a page that may be published."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from course_lib.grading.integrity.documents import Document
from course_lib.grading.integrity.matches import Match, Spans
from course_lib.grading.reports import attention, class_figures, pages
from course_lib.grading.reports.class_report import ClassReport, Submission
from course_lib.grading.reports.leaderboard import BETWEEN_SESSIONS, Place
from course_lib.profiling.layer_tables.table_diff import listed

if TYPE_CHECKING:
    from markupsafe import Markup

_SHOWN_PAIRS = 40  # of similar submissions, with both sides
_CONTEXT = 3  # lines around what is in common


def page(report: ClassReport) -> str:
    """The whole class; for the instructor alone."""
    counts = [f"{len(report.submissions)} graded", f"{len(report.to_review)} to review", f"{len(report.late)} late"]
    few = ((report.ungraded, "not graded yet"), (report.rejected, "cannot be graded"), (report.missing, "missing"))
    counts += [f"{len(found)} {said}" for found, said in few if found]
    late_rows = [(_linked(report, one.student), late(one), one.score, one.penalty, one.final) for one in report.late]
    columns = ("student", "open points", "why")
    absent = {
        "needs a review": [*report.to_review, *report.unlisted, *report.similar, *report.shared_instances],
        "was late": report.late,
    }
    return pages.page(
        f"{report.title}: class report",
        "class.html",
        report=report,
        counts=counts,
        attention={
            title: pages.table(columns, [(_who(report, need), need.open or "", need.why) for need in needs])
            for title, needs in attention.sections(report).items()
        },
        figures=[pages.figure(*drawn(report)) for drawn in (class_figures.distribution, class_figures.difficulty)],
        late=pages.table(("student", "late by", "points", "penalty", "final"), late_rows),
        similar=[_side_by_side(match) for match in report.similar[:_SHOWN_PAIRS]],
        similar_unshown=len(report.similar[_SHOWN_PAIRS:]),
        nobody=[said for said, found in absent.items() if not found],
        everybody=_everybody(report),
    )


def _side_by_side(match: Match) -> dict[str, object]:
    """Both sides of a match, with what is in common marked."""
    sides = [
        (student, document.name, marked(document, spans))
        for student, document, spans in zip(match.students, match.documents, match.spans, strict=True)
    ]
    return {"students": " and ".join(match.students), "reading": match.reading, "sides": sides}


def marked(document: Document, spans: Spans) -> list[tuple[bool, str]]:
    """A document's text in pieces, each with whether it is in common. Long pieces that are not are cut in their middle."""
    pieces, at = list[tuple[bool, str]](), 0
    for start, end in spans:
        pieces += [(False, _cut(document.text[at:start])), (True, document.text[start:end])]
        at = end
    return [(common, text) for common, text in (*pieces, (False, _cut(document.text[at:]))) if text]


def _cut(text: str) -> str:
    lines = text.split("\n")
    return text if len(lines) <= 2 * _CONTEXT + 1 else "\n".join([*lines[:_CONTEXT], "[...]", *lines[-_CONTEXT:]])


def board(report: ClassReport, places: Sequence[Place]) -> str:
    """The leaderboard by itself: ranks, published names, points and speeds, and nothing else."""
    from matplotlib.ticker import MaxNLocator

    speeds = [place.speed for place in places if place.speed]
    ends = [end for one in speeds for end in (one.low, one.high)]
    ticks = MaxNLocator(5, steps=[1, 2, 5, 10]).tick_values(
        min(0.9, *ends), max(1.1, *ends)
    )  # the outermost are beyond the ends
    low, high = ticks[0], ticks[-1]
    return pages.page(
        f"{report.title}: leaderboard",
        "leaderboard.html",
        class_title=report.title,
        groups=[list(group) for _, group in groupby(places, key=lambda place: place.rank)],
        lab=report.submissions[0],
        ticks=ticks,
        percent=lambda speed: 100 * (speed - low) / (high - low),
        widened=100 * BETWEEN_SESSIONS,
    )


def late(one: Submission) -> str:
    """How late, in days or hours."""
    days, hours = divmod(one.late_s / 3600, 24)
    return f"{days:.0f} d {hours:.0f} h" if days else f"{hours:.1f} h"


def _who(report: ClassReport, need: attention.Need) -> Markup:
    """Those whom it concerns, each graded one leading to its report; of many, the first ones."""
    from markupsafe import Markup, escape

    graded = {one.student for one in report.submissions}
    names = [_linked(report, who) if who in graded else escape(who) for who in need.who]
    return Markup(listed(names, attention.NAMED))


def _linked(report: ClassReport, student: str) -> Markup:
    """The student's id, leading to the report beside this page."""
    return pages.link(student, f"{student}/{report.lab}.html")


def _everybody(report: ClassReport) -> Markup:
    first = report.submissions[0]
    written = first.written.maximum
    titles = [f"{task.title} (of {task.max_points:g})" for task in first.tasks]
    raced = any(one.of_reference for one in report.submissions)
    speed = "speed over the reference" if raced else f"speed over {report.baseline or 'PyTorch'}"
    columns = (
        "student",
        f"final (of {first.max_score:g})",
        "open",
        *titles,
        f"written (of {written:g})",
        "late penalty",
        speed,
    )
    rows = [
        (
            _linked(report, one.student),
            pages.Cell(f"{one.final:g}", tone="final"),
            one.review.points.open or "",
            *(pages.Cell(str(task), tone=task.tier) for task in one.tasks),
            one.written.in_cell if written else "",
            f"-{one.penalty:g}" if one.penalty else "",
            (one.of_reference if raced else one.speedup) or "",
        )
        for one in report.by_need
    ]
    return pages.table(columns, rows)
