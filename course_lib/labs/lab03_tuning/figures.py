"""Lab 03's figures: the runs of a simulated device, and builds against runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from course_lib import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_runs(runs: Sequence[tuple[str, float]], takeaway: str) -> Figure:
    """Draw each run of a device in order, with a color for each tactic.

    Args:
        runs: tactic and milliseconds of each run.
        takeaway: the title.
    """
    figure = style.figure(8.0, 3.2)
    axes = figure.subplots()
    for index, name in enumerate(dict(runs)):
        points = [(number, ms) for number, (tactic, ms) in enumerate(runs) if tactic == name]
        axes.plot(*zip(*points, strict=True), "o", ms=4, color=style.color(index), label=name)
    axes.set(xlabel="number of the run", ylabel="simulated time (ms)", title=takeaway)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def draw_levels(levels: Mapping[int, tuple[float, float]], runs: int, takeaway: str) -> Figure:
    """Draw the seconds in the compiler and the seconds of all runs, one bar for each optimization level.

    Args:
        levels: seconds in the compiler and milliseconds of a run, by level.
        runs: between two builds.
        takeaway: the title.
    """
    figure = style.figure(7.0, 3.0)
    axes = figure.subplots()
    names = [str(level) for level in levels]
    build = [seconds for seconds, _ in levels.values()]
    run = [runs * ms / 1e3 for _, ms in levels.values()]
    axes.barh(names, build, 0.6, color=style.color(1), label="compiler")
    axes.barh(names, run, 0.6, left=build, color=style.color(0), label=f"{runs:,} runs")
    axes.invert_yaxis()
    axes.set(xlabel="time (s)", ylabel="optimization level", title=takeaway)
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure
