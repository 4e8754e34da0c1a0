"""Figures of services: the effect of a queue on frames, and ratios with their intervals."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING

from course_lib import style
from course_lib.benchmark.statistics import Interval

if TYPE_CHECKING:
    from course_lib.benchmark.serving import Served


def queues(served: Mapping[str, Served], title: str) -> style.Figure:
    """Two bars for each queue: the share of frames that it lost, and the latency of its slowest frame.

    Args:
        served: results by the name of the queue.
        title: the takeaway.
    """
    figure, panels = style.subplots(1.2 + 0.45 * len(served), 1, 2, sharey=True)
    columns = {
        "frames lost": ("%.0f %%", [100 * one.lost_share for one in served.values()]),
        "slowest frame": ("%.0f ms", [one.worst_ms for one in served.values()]),
    }
    for axes, (label, (form, values)) in zip(panels, columns.items(), strict=True):
        axes.bar_label(axes.barh(range(len(values)), values, 0.6, color=style.color(0)), fmt=form, padding=3)
        axes.set_title(label, fontsize=9, weight="normal", loc="left")
        axes.set_xticks([])
        axes.spines["bottom"].set_visible(False)
        axes.margins(x=0.35)
    style.name_rows(panels[0], [name.replace(", ", ",\n") for name in served])
    figure.suptitle(title)
    return figure


def ratios(values: Mapping[str, Interval], label: str, title: str) -> style.Figure:
    """Draw ratios with their 95 % intervals, one row each, and a line at 1.

    Args:
        values: intervals by name, drawn from top to bottom.
        label: name of the ratio.
        title: the takeaway.
    """
    figure, axes = style.subplots(0.9 + 0.4 * len(values))
    axes.axvline(1, color="#777777", lw=1, ls="--")
    for row, one in enumerate(values.values()):
        axes.plot([one.low, one.high], [row, row], lw=3, color=style.color(0), solid_capstyle="butt")
        axes.plot(one.median, row, "o", ms=7, color=style.color(0))
        axes.annotate(str(one), (one.high, row), (8, 0), textcoords="offset points", va="center", fontsize=8)
    style.name_rows(axes, [textwrap.fill(name, 18) for name in values])
    axes.set(xlim=(0, 2 * max(one.high for one in values.values())), xlabel=label)
    axes.set_title(title)
    return figure
