"""The feedback on one submission as a single HTML page: points with reasons, the race, the layers, and how to repeat it.

Nothing hidden is in it: no seed, no data, no file of the reference; those stay in the verdict's JSON, which is the instructor's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from course_lib import labs
from course_lib.benchmark import Comparison
from course_lib.engines import LayerTable
from course_lib.grading.judge.review import Review
from course_lib.grading.judge.verdict import Verdict
from course_lib.grading.reports import pages, speed_figure
from course_lib.grading.reports.layer_feedback import LayerFeedback
from course_lib.grading.reports.speed_figure import Ratio
from course_lib.labs import Lab, Outcome
from course_lib.labs.framework import criteria

_TIERS = {"full": "all points", "partial": "part of the points", "none": "no points yet", "inconclusive": "inconclusive"}
_SHOWN = 4  # layers that a cell of the table names


def page(lab: Lab, verdict: Verdict, student: str) -> str:
    """The whole page."""
    head = f'<header><h1>{escape(lab.title)}</h1><p class="soft">Feedback for {escape(student)}</p></header>'
    return pages.page(f"{lab.title}: {student}", pages.block([head, *_parts(verdict)], tag="main"))


def body(verdict: Verdict) -> str:
    """The report without the page around it, for nbgrader's feedback."""
    return pages.block(_parts(verdict))


def _parts(verdict: Verdict) -> Iterator[str]:
    lab = labs.find(verdict.lab)
    review = Review.of(lab, verdict)
    open_points = f"; {review.points.open:g} more are open" if review.points.open else ""
    yield f'<p class="total">{review.points.earned:g} <span>of {review.points.maximum:g} points{open_points}</span></p>'
    if review.needed:
        reasons = "".join(f"<li>{escape(reason.text)}</li>" for reason in review.reasons)
        yield f'<div class="note"><b>An instructor will review this submission:</b><ul>{reasons}</ul></div>'
    if verdict.fault:
        return
    yield "".join(_task(outcome) for outcome in verdict.outcomes)
    if verdict.comparison:
        yield from _race(lab, verdict.comparison)
    if verdict.layers:
        yield from _beside_the_reference(verdict.layers)
    yield from _kernels(verdict.table)
    yield from _how_to_repeat(lab, verdict.provenance)


def _task(outcome: Outcome) -> str:
    hint = f'<p class="hint">Hint: {escape(outcome.hint)}</p>' if outcome.hint else ""
    return (
        f'<section class="task {escape(outcome.tier)}"><p><b>{escape(outcome.task.title)}</b>: {outcome.points:g} of '
        f'{outcome.task.points:g} <span class="soft">({_TIERS.get(outcome.tier, escape(outcome.tier))})</span></p>'
        f"<p>{escape(outcome.message)}</p>{criteria.as_html(outcome.criteria)}{hint}</section>"
    )


def _race(lab: Lab, comparison: Comparison) -> Iterator[str]:
    ratios = speed_figure.ratios(comparison, lab.speed)
    yield "<h2>How fast</h2>"
    yield pages.figure(speed_figure.draw(comparison, ratios), speed_figure.said(comparison, ratios))
    if any(ratio.full is not None for ratio in ratios):
        rows = [_boundaries(ratio) for ratio in ratios]
        columns = ("your speed", "measured", "part of the points from", "all points from", "the whole interval lies")
        yield pages.table(
            columns, rows, caption="A tier is reached when the whole interval lies above its boundary, in every row."
        )
    rounds = len(comparison.measurements[comparison.baseline].latencies_ms)
    end = "the tier was clear" if comparison.stopped == "precise" else "the time was up"
    yield (
        f'<p class="soft">{rounds} rounds in {comparison.seconds:.0f} s, all subjects in shuffled order in each, the way to the '
        f"engine's process and back included. Stopped because {end}.</p>"
    )


def _boundaries(ratio: Ratio) -> tuple[str, ...]:
    bounds = [(ratio.partial, "part of the points"), (ratio.full, "all points")]
    passed = [name for bound, name in bounds if bound is not None and ratio.interval.low >= bound]
    across = [name for bound, name in bounds if bound is not None and not ratio.interval.excludes(bound)]
    where = f"across the boundary of {across[-1]}" if across else f"above that of {passed[-1]}" if passed else "below both"
    return (f"against {ratio.over}", str(ratio.interval), f"{ratio.partial:g}", f"{ratio.full:g}", where)


def _beside_the_reference(layers: LayerFeedback) -> Iterator[str]:
    yield "<h2>Beside the reference</h2><ul>" + "".join(f"<li>{escape(text)}</li>" for text in layers.sentences) + "</ul>"
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
    yield pages.table(columns, rows, caption="Only where the two engines differ, and types only where they do.")


def _kernels(table: LayerTable | None) -> Iterator[str]:
    if not table or not table.kernels:
        return
    keys = ("kernel", "operators" if table.operators else "onnx", "reads", "weights", "writes", "shape", "format")
    counts = ", ".join(f"{n} with {dtype}" for dtype, n in table.dtype_counts().most_common())
    caption = f"{len(table.operators) or '?'} ONNX nodes became {len(table.kernels)} kernels ({counts})."
    yield "<h2>What your network became</h2>"
    yield pages.table(keys, [[row[key] for key in keys] for row in table.rows()], caption=caption)


def _how_to_repeat(lab: Lab, known: Mapping[str, Any]) -> Iterator[str]:
    versions = ", ".join(f"{name} {version}" for name, version in known["backends"].items())
    files = ", ".join(f"{name} (SHA-256 {digest[:12]}...)" for name, digest in known["sha256"].items()) or "no files"
    yield (
        "<h2>How to repeat it</h2><p>In the folder with your files, on a machine of the same kind:</p>"
        f"<pre>course check {escape(lab.name)} .\ncourse doctor</pre><p>The first runs the grader's own examination with hints, on "
        "data that it draws anew: figures differ a little from run to run, tiers should not. The second says what your machine "
        f"builds and runs with; the grader built with {escape(str(known['builder']))} and ran with {escape(str(known['runner']))}.</p>"
    )
    footer = (
        f"Graded {known['date']} on {known['machine']}; course {known['course']}, Python {known['python']}, {versions}; "
        f"sandbox: {known['sandbox']}; handed in: {files}."
    )
    yield f"<footer>{escape(footer)}</footer>"
