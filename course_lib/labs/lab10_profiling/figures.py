"""Lab 10's figures: three requests on a timeline, and the parts of the time per scan before and after the changes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from course_lib import style
from course_lib.labs.lab10_profiling.network import RECORDED, serving
from course_lib.profiling import Timeline, draw_timeline
from course_lib.profiling.timelines.timeline import time_text

_AROUND = ("request", "prepare")  # ranges that hold others


def draw_stretch(timeline: Timeline, *, of: str = "request", first: int = 2, count: int = 3) -> style.Figure:
    """Draw consecutive ranges of one name with the ranges inside, and below them the engine's work with its idle time in gray.

    Raises:
        ValueError: the recording does not have that many ranges of this name.
    """
    drawn = [event for event in timeline.events if event.name == of][first : first + count]
    if len(drawn) < count or count < 1:
        raise ValueError(f"the recording has no {first + count} ranges {of!r}: does the pipeline name them so?")
    start, end = drawn[0].start_us, max(event.end_us for event in drawn)
    figure = draw_timeline(timeline, start_us=start, end_us=end, device="engine")
    axes, shown = figure.axes[0], timeline.window(start, end)
    busy = 100 * shown.busy_us / shown.span_us
    axes.set_title(f"The engine works {busy:.0f} % of these {time_text(shown.span_us)}; gray: it waits", loc="left")
    return figure


def time_by_range(timelines: Mapping[str, Timeline]) -> style.Figure:
    """Milliseconds per scan in each range while serving, of several recordings of `lab10_service.record`, by name."""
    spent = {name: _innermost_ms(timeline) for name, timeline in timelines.items()}
    ranges = sorted({r for found in spent.values() for r in found}, key=lambda r: max(s.get(r, 0.0) for s in spent.values()))
    figure, axes = style.subplots(1.3 + 0.36 * len(ranges))
    height = 0.8 / len(spent)
    for index, (name, found) in enumerate(spent.items()):
        places = np.arange(len(ranges)) + (len(spent) / 2 - index - 0.5) * height
        bars = axes.barh(places, [found.get(r, 0.0) for r in ranges], height, color=style.color(index), label=name)
        axes.bar_label(bars, fmt="%.2g", padding=2, fontsize=8)
    totals = [serving(timeline).span_us / 1e3 / sum(RECORDED) for timeline in timelines.values()]
    axes.set_yticks(range(len(ranges)), ranges)
    axes.set(xlabel="time in the range (ms per scan)")
    axes.margins(x=0.1)
    style.name_colors(axes)
    slowest = max(ranges, key=lambda r: next(iter(spent.values())).get(r, 0.0), default="")
    change = f", then {totals[-1]:.2g} ms" if len(totals) > 1 else f"; most of it in '{slowest}'"
    axes.set_title(f"A scan takes {totals[0]:.2g} ms{change}")
    return figure


def _innermost_ms(timeline: Timeline) -> dict[str, float]:
    rows = (row for row in serving(timeline).summary() if row.kind == "range" and row.name not in _AROUND)
    return {row.name: row.total_us / 1e3 / sum(RECORDED) for row in rows}
