"""Figures of services: the effect of a queue on frames, and ratios with their intervals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from course_lib import style
from course_lib.benchmark.statistics import Interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from course_lib.benchmark.serving import Served


def queues(served: Mapping[str, Served], title: str) -> Figure:
    """Draw the latency of each frame over its arrival time, one panel per queue, with lost frames as crosses at the bottom.

    Args:
        served: results by the name of the queue.
        title: the takeaway.
    """
    figure = style.figure(0.8 + 1.3 * len(served))
    panels = np.atleast_1d(figure.subplots(len(served), 1, sharex=True, sharey=True))
    for index, (name, one) in enumerate(served.items()):
        axes, lost = panels[index], np.isnan(one.latency_ms)
        axes.plot(one.offered_s, one.latency_ms, ".", ms=4, color=style.color(0))
        axes.plot(one.offered_s[lost], np.zeros(lost.sum()), "x", ms=4, color=style.color(1))
        fate = f"{100 * one.lost_share:.0f} % lost, slowest {one.worst_ms:.0f} ms"
        axes.set_title(f"{name}: {fate}", fontsize=9, weight="normal", loc="left")
        axes.set_ylabel("latency (ms)")
    slowest = max(one.worst_ms for one in served.values())
    panels[0].set_ylim(-0.04 * slowest, 1.06 * slowest)  # crosses at 0 stay whole
    panels[-1].set_xlabel("time of arrival (s); blue: answered, orange crosses: lost")
    figure.suptitle(title)
    return figure


def ratios(values: Mapping[str, Interval], label: str, title: str) -> Figure:
    """Draw ratios with their 95 % intervals, one row each, and a line at 1.

    Args:
        values: intervals by name, drawn from top to bottom.
        label: name of the ratio.
        title: the takeaway.
    """
    figure = style.figure(0.9 + 0.4 * len(values))
    axes = figure.add_subplot()
    axes.axvline(1, color="#777777", lw=1, ls="--")
    for row, one in enumerate(values.values()):
        axes.plot([one.low, one.high], [row, row], lw=3, color=style.color(0), solid_capstyle="butt")
        axes.plot(one.median, row, "o", ms=7, color=style.color(0))
        axes.annotate(str(one), (one.high, row), (8, 0), textcoords="offset points", va="center", fontsize=8)
    axes.set_yticks(range(len(values)), list(values))
    axes.set(ylim=(len(values) - 0.4, -0.6), xlim=(0, 1.6 * max(one.high for one in values.values())), xlabel=label)
    axes.set_title(title)
    return figure
