"""The feedback on one submission as a single HTML page: points with reasons, the race, the layers, and how to repeat it.

Nothing hidden is in it: no seed, no data, no file of the reference; those stay in the verdict's JSON, which is the instructor's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from course_lib import labs
from course_lib.benchmark import Comparison
from course_lib.engines import LayerTable
from course_lib.grading.judge.review import Cell, Review
from course_lib.grading.judge.verdict import Verdict
from course_lib.grading.reports import pages, speed_figure
from course_lib.grading.reports.layer_feedback import LayerFeedback
from course_lib.labs import Lab, Outcome, requirements
from course_lib.labs.framework.criteria import Tier, grouped
from course_lib.style import breakable_html

if TYPE_CHECKING:
    from markupsafe import Markup

_TIERS = {
    Tier.FULL: "all points",
    Tier.PARTIAL: "part of the points",
    Tier.NONE: "no points yet",
    Tier.INCONCLUSIVE: "inconclusive",
}
_BY_HAND = "points from an instructor"
_SHOWN = 4  # layers that a cell of the table names


def page(lab: Lab, verdict: Verdict, student: str, cells: Sequence[Cell] | None = None, penalty: float = 0.0) -> str:
    """The whole page.

    Args:
        lab, verdict, student: of the submission.
        cells: the gradebook's, with written questions and points by hand; None: the tasks as the verdict leaves them.
        penalty: points that are taken off because it was late.
    """
    return pages.page(f"{lab.title}: {student}", "report.html", **_values(verdict, student, cells, penalty))


def body(verdict: Verdict, cells: Sequence[Cell] | None = None, penalty: float = 0.0) -> str:
    """The report without the page around it, for nbgrader's feedback."""
    return pages.block("report.html", **_values(verdict, "", cells, penalty))


def points(verdict: Verdict, cells: Sequence[Cell] | None = None, penalty: float = 0.0) -> str:
    """The part of a page that depends on the gradebook."""
    return pages.part("points.html", **_points(labs.find(verdict.lab), verdict, cells, penalty))


def _values(verdict: Verdict, student: str, cells: Sequence[Cell] | None, penalty: float) -> dict[str, Any]:
    lab = labs.find(verdict.lab)
    values = {"lab": lab, "verdict": verdict, "student": student, **_points(lab, verdict, cells, penalty)}
    if verdict.fault:
        return values
    return values | {
        "race": _race(lab, verdict.comparison) if verdict.comparison else None,
        "differences": _differences(verdict.layers) if verdict.layers else None,
        "kernels": _kernels(verdict.table) if verdict.table else None,
    }


def _points(lab: Lab, verdict: Verdict, cells: Sequence[Cell] | None, penalty: float) -> dict[str, Any]:
    review, known = Review.of(lab, verdict, cells), {cell.name: cell for cell in cells or ()}
    reasons = " ".join(reason.text for reason in review.reasons)
    groups = [
        {
            "outcome": group[0],
            "rows": [_row(outcome, known.get(outcome.task.id)) for outcome in group],
            "message": "" if group[0].remark in reasons else group[0].remark,
            "requirements": pages.table(requirements.COLUMNS, requirements.rows(group[0].criteria)),
        }
        for group in grouped(verdict.outcomes)
    ]
    written = [cell for cell in known.values() if cell.name not in {task.id for task in lab.tasks}]
    questions = [
        (
            "Written question" if len(written) == 1 else f"Written question {cell.name!r}",
            "-" if cell.marked and not cell.by_hand else cell.points,
            cell.maximum,
            "an instructor will read it" if cell.marked else _BY_HAND if cell.by_hand else "not answered",
        )
        for cell in written
    ]
    return {"review": review, "groups": groups, "questions": questions, "penalty": penalty}


def _row(outcome: Outcome, cell: Cell | None) -> tuple[str, float | str, float, str]:
    """Title, points, "-" while they are open, maximum, and how the points came about."""
    if cell and cell.by_hand:
        return outcome.task.title, cell.points, cell.maximum, _BY_HAND
    points = outcome.points or ("-" if outcome.tier == Tier.INCONCLUSIVE else 0.0)
    return outcome.task.title, points, outcome.task.points, _TIERS[outcome.tier]


def _race(lab: Lab, comparison: Comparison) -> dict[str, Any]:
    ratios = speed_figure.ratios(comparison, lab.speed)
    return {
        "figures": [pages.figure(*drawn) for drawn in (speed_figure.latencies(comparison), speed_figure.intervals(ratios))],
        "rounds": len(comparison.measurements[comparison.baseline].latencies_ms),
    }


def _differences(layers: LayerFeedback) -> Markup:
    rows = [
        (
            one.operators,
            ", ".join(one.layers[:_SHOWN]) + (", ..." if len(one.layers) > _SHOWN else ""),
            *one.kernels,
            *one.types,
        )
        for one in layers.differences
    ]
    columns = ("operators", "layers of your graph", "your kernels", "reference", "you read", "the reference reads")
    return pages.table(columns, rows, caption="Only where the two engines differ, and types only where they do.")


def _kernels(table: LayerTable) -> Markup:
    keys = ["operators" if table.operators else "onnx", "types", "shape", "format"]
    found = table.rows()
    if len({row["types"] for row in found}) == 1:
        keys.remove("types")  # the caption has the one type of all
    rows = [[breakable_html(row["kernel"]), *(row[key] for key in keys)] for row in found]
    return pages.table(("kernel", *keys), rows, caption=f"{table.caption()}.")
