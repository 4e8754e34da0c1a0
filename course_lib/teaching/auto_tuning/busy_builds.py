"""What a busy host does to the engines that are built on it, drawn from the record ``busy_builds_h100``."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from course_lib import style

Row = Mapping[str, Any]


def draw_busy_builds(rows: Sequence[Row], batch: int = 1) -> style.Figure:
    """Draw the time of every engine as a dot and the median of each condition as a line, one part for each host.

    Args:
        rows: of the record ``busy_builds_h100``; the first row of a host is the build alone.
        batch: the batch size at which the engines were timed.
    """
    hosts: dict[tuple[int, int], list[Row]] = {}
    for row in rows:
        if row["batch"] == batch:
            hosts.setdefault((row["gpus"], row["cores"]), []).append(row)
    figure = style.figure(1.4 + 0.36 * sum(map(len, hosts.values())))
    parts = figure.subplots(len(hosts), 1, sharex=True, squeeze=False, height_ratios=[len(shown) for shown in hosts.values()])
    for axes, ((gpus, cores), shown) in zip(parts[:, 0], hosts.items(), strict=True):
        _dots(axes, shown)
        axes.set_title(f"{gpus} GPU{'s' if gpus > 1 else ''}, {cores} cores", loc="left", fontsize=9)
    figure.supxlabel(f"µs of one inference at batch {batch} (dot: engine, line: median)", fontsize=9)
    first = next(iter(hosts.values()))
    ratios = {row["condition"]: median(row["replays_us"]) / median(first[0]["replays_us"]) for row in first}
    worst = max(ratios, key=lambda condition: ratios[condition])
    title = f"Built beside {worst}, the median engine takes {ratios[worst]:.2f} times as long as built alone"
    figure.suptitle(title)
    return figure


def _dots(axes: style.Axes, rows: Sequence[Row]) -> None:
    """A line of dots for each condition: orange where busy loops ran and nothing was done against them."""
    for place, row in enumerate(rows):
        helped = row["avg_timing_iterations"] > 1 or row["timing_cache"] != "empty"
        hue = style.color(2 if helped else 1 if row["busy_loops"] else 0)
        times = row["replays_us"]
        axes.plot(times, [place] * len(times), "o", ms=5, alpha=0.6, color=hue)
        axes.plot([median(times)] * 2, [place - 0.35, place + 0.35], color=hue, lw=2)
    axes.set_yticks(range(len(rows)), [textwrap.fill(row["condition"], 25) for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.grid(axis="x", color="0.9")
