"""The feedback on one submission as a single HTML page: points with reasons, the race, the layers, and how to repeat it.

Nothing hidden is in it: no seed, no data, no file of the reference; those stay in the verdict's JSON, which is the instructor's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from course_lib import labs
from course_lib.benchmark import Comparison
from course_lib.engines import LayerTable
from course_lib.grading.judge.review import Review
from course_lib.grading.judge.verdict import Verdict
from course_lib.grading.reports import pages, speed_figure
from course_lib.grading.reports.layer_feedback import LayerFeedback
from course_lib.grading.reports.speed_figure import Ratio
from course_lib.labs import Lab

if TYPE_CHECKING:
    from markupsafe import Markup

_TIERS = {"full": "all points", "partial": "part of the points", "none": "no points yet", "inconclusive": "inconclusive"}
_SHOWN = 4  # layers that a cell of the table names


def page(lab: Lab, verdict: Verdict, student: str) -> str:
    """The whole page."""
    return pages.page(f"{lab.title}: {student}", "report.html", **_values(verdict, student))


def body(verdict: Verdict) -> str:
    """The report without the page around it, for nbgrader's feedback."""
    return pages.block("report.html", **_values(verdict, ""))


def _values(verdict: Verdict, student: str) -> dict[str, Any]:
    lab = labs.find(verdict.lab)
    values = {"lab": lab, "verdict": verdict, "student": student, "review": Review.of(lab, verdict), "tiers": _TIERS}
    if verdict.fault:
        return values
    return values | {
        "race": _race(lab, verdict.comparison) if verdict.comparison else None,
        "differences": _differences(verdict.layers) if verdict.layers else None,
        "kernels": _kernels(verdict.table) if verdict.table else None,
    }


def _race(lab: Lab, comparison: Comparison) -> dict[str, Any]:
    ratios = speed_figure.ratios(comparison, lab.speed)
    return {
        "figure": pages.figure(speed_figure.draw(comparison, ratios), speed_figure.said(comparison, ratios)),
        "boundaries": pages.table(
            ("your speed", "measured", "part of the points from", "all points from", "the whole interval lies"),
            map(_boundaries, ratios) if any(ratio.full is not None for ratio in ratios) else (),
            caption="A tier is reached when the whole interval lies above its boundary, in every row.",
        ),
        "rounds": len(comparison.measurements[comparison.baseline].latencies_ms),
    }


def _boundaries(ratio: Ratio) -> tuple[str, ...]:
    bounds = [(ratio.partial, "part of the points"), (ratio.full, "all points")]
    passed = [name for bound, name in bounds if bound is not None and ratio.interval.low >= bound]
    across = [name for bound, name in bounds if bound is not None and not ratio.interval.excludes(bound)]
    where = f"across the boundary of {across[-1]}" if across else f"above that of {passed[-1]}" if passed else "below both"
    return (f"against {ratio.over}", str(ratio.interval), f"{ratio.partial:g}", f"{ratio.full:g}", where)


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
    keys = ("kernel", "operators" if table.operators else "onnx", "reads", "weights", "writes", "shape", "format")
    counts = ", ".join(f"{n} with {dtype}" for dtype, n in table.dtype_counts().most_common())
    caption = f"{len(table.operators) or '?'} ONNX nodes became {len(table.kernels)} kernels ({counts})."
    return pages.table(keys, [[row[key] for key in keys] for row in table.rows()], caption=caption)
