"""Lab 03's figures: the runs of a simulated device, and engines that were built several times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from course_lib import style


def draw_runs(runs: Sequence[tuple[str, float]], takeaway: str) -> style.Figure:
    """Draw each run of a device, a tactic and milliseconds, in order, with a color for each tactic."""
    figure, axes = style.subplots(3.2)
    for index, name in enumerate(dict(runs)):
        points = [(number, ms) for number, (tactic, ms) in enumerate(runs) if tactic == name]
        axes.plot(*zip(*points, strict=True), "o", ms=4, color=style.color(index), label=name)
    axes.set(xlabel="number of the run", ylabel="simulated time (ms)", title=takeaway)
    axes.set_ylim(bottom=0)
    style.name_colors(axes)
    return figure


def draw_builds(record: Mapping[str, Mapping[str, Any]], takeaway: str) -> style.Figure:
    """Draw the time of each engine of `Instance.repeated_builds` as a dot, one line for each condition of its build."""
    figure, axes = style.subplots(0.9 + 0.3 * len(record))
    for place, row in enumerate(record.values()):
        axes.plot(row["us"], [place] * len(row["us"]), "o", ms=5, alpha=0.6, color=style.color(1 if row["full"] else 0))
    style.name_rows(axes, list(record))
    axes.set(xlabel="time of one inference (µs); orange: other programs used all cores", title=takeaway)
    return figure
