"""The page of a class: figures and tables for the instructor, and the leaderboard as a page that may be published."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from course_lib.grading.reports import attention, class_figures, pages
from course_lib.grading.reports.class_report import ClassReport, Submission
from course_lib.grading.reports.leaderboard import BETWEEN_SESSIONS, Place


def page(report: ClassReport) -> str:
    """The whole class; for the instructor alone."""
    return pages.page(f"{report.title}: class report", pages.block(_parts(report), tag="main"))


def board(report: ClassReport, places: Sequence[Place]) -> str:
    """The leaderboard by itself: ranks, published names, points and speeds, and nothing else."""
    rows = [(place.rank, place.name, place.points, str(place.speed or "not raced")) for place in places]
    parts = [
        f'<h1>Leaderboard</h1><p class="soft">{escape(report.title)}</p>',
        pages.table(("rank", "name", "points", "speed relative to the reference"), rows),
        '<p class="soft">Ranked by points, then by speed relative to the reference engine, measured in the same session [95 % interval]. '
        f"Two engines share a rank if they have equal points and their intervals, widened by {100 * BETWEEN_SESSIONS:g} % for the "
        "difference between two sessions, overlap.</p>",
    ]
    return pages.page(f"{report.title}: leaderboard", pages.block(parts, tag="main"))


def late(one: Submission) -> str:
    """How late, in days or hours."""
    days, hours = divmod(one.late_s / 3600, 24)
    return f"{days:.0f} d {hours:.0f} h" if days else f"{hours:.1f} h"


def _parts(report: ClassReport) -> Iterator[str]:
    counts = [f"{len(report.submissions)} graded", f"{len(report.to_review)} to review", f"{len(report.late)} late"]
    few = ((report.ungraded, "not graded yet"), (report.rejected, "cannot be graded"), (report.missing, "missing"))
    counts += [f"{len(found)} {said}" for found, said in few if found]
    yield f'<h1>{escape(report.title)}</h1><p class="soft">{", ".join(counts)}</p>'
    yield from _who_needs_you(report)
    figures = (class_figures.distribution(report), class_figures.difficulty(report), class_figures.scatter(report))
    yield f'<div class="figures">{"".join(pages.figure(*drawn) for drawn in figures if drawn)}</div>'
    if report.late:
        yield "<h2>Late</h2>"
        late_rows = [(_linked(report, one), late(one), one.score, one.penalty, one.final) for one in report.late]
        yield pages.table(("student", "late by", "points", "penalty", "final"), late_rows)
    if report.alike:
        yield "<h2>Identical files</h2>"
        alike = [(one.file, ", ".join(one.students), one.reading) for one in report.alike]
        yield pages.table(("file", "students", "how to read it"), alike)
        yield (
            '<p class="soft">Equal files are a reason to ask, not a proof: what the course\'s own export writes is the same for everybody, '
            "and short files have few right answers. Look first at files of which most of the class has its own version.</p>"
        )
    nothing = [
        said
        for found, said in (
            (report.to_review, "needs a review"),
            (report.late, "was late"),
            (report.alike, "has a file that equals another's"),
        )
        if not found
    ]
    if nothing:
        yield f"<p>Nobody {', or '.join(nothing)}.</p>"
    yield "<h2>Everybody</h2>"
    yield _everybody(report)
    if report.missing:
        yield f"<p><b>Handed nothing in:</b> {escape(', '.join(report.missing))}</p>"


def _who_needs_you(report: ClassReport) -> Iterator[str]:
    """One row for each reason: what twenty submissions wait for is one line."""
    sections = (
        ("Not graded", attention.not_graded(report)),
        ("Graded in part", attention.in_part(report)),
        ("To review", attention.to_review(report)),
    )
    for title, needs in sections:
        if needs:
            rows = [(_who(report, need), *([need.open] if title == "To review" else []), need.why) for need in needs]
            yield f"<h2>{title}</h2>"
            yield pages.table(("student", *(["open points"] if title == "To review" else []), "why"), rows)


def _who(report: ClassReport, need: attention.Need) -> str | pages.Link:
    graded = {one.student: one for one in report.submissions}
    alone = graded.get(need.who[0]) if len(need.who) == 1 else None
    return _linked(report, alone) if alone else need.named


def _linked(report: ClassReport, one: Submission) -> pages.Link:
    """The student's id, leading to the report beside this page."""
    return pages.Link(one.student, f"{one.student}/{report.lab}.html")


def _everybody(report: ClassReport) -> str:
    titles = [task.title for task in report.submissions[0].tasks]
    speeds = ("of the reference's speed", f"over {report.baseline or 'PyTorch'}")
    columns = ("student", *titles, "points", "open", "penalty", "final", report.quality or "quality", *speeds)
    rows = [
        (
            _linked(report, one),
            *(f"{task.points:g} ({task.tier})" for task in one.tasks),
            f"{one.score:g} of {one.max_score:g}",
            one.review.points.open,
            one.penalty,
            one.final,
            "" if one.quality is None else f"{one.quality:.4g}",
            one.of_reference or "",
            one.speedup or "",
        )
        for one in report.submissions
    ]
    return pages.table(columns, rows)
