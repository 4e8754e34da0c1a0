"""Figures of lecture 16: numbers of a format, the cost of rounding, one block's scale, channels with an outlier, size and quality."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from course_lib import style
from course_lib.teaching.low_bits.loss import Cost

_MORE = "more bits per byte than FP32\n(bars: 95 % intervals)"


def draw_grids(grids: Mapping[str, np.ndarray], title: str) -> style.Figure:
    """The positive numbers of each format as ticks, divided by the largest one.

    Args:
        grids: numbers by name of the format, in any order.
        title: the takeaway.
    """
    figure, axes = style.subplots(1.0 + 0.42 * len(grids))
    for row, numbers in enumerate(grids.values()):
        shown = np.unique(numbers[numbers >= 0]) / numbers.max()
        axes.vlines(shown, row - 0.32, row + 0.32, color=style.color(0), lw=1.2)
        axes.annotate(
            f"{len(shown)}", (1.0, row), (8, 0), xycoords=("axes fraction", "data"), textcoords="offset points", va="center"
        )
    style.name_rows(axes, list(grids))
    axes.set(xlim=(-0.005, 1.005), xlabel="value / largest value; right: how many numbers from 0 on", title=title)
    return figure


def draw_costs(costs: Mapping[str, Mapping[str, Cost]], title: str) -> style.Figure:
    """The cost of each series for each case, as points with intervals.

    Args:
        costs: by name of the series, then of the case. All series have the same cases.
        title: the takeaway.
    """
    cases = list(next(iter(costs.values())))
    figure, axes = style.subplots(1.4 + 0.16 * len(cases) * (1 + len(costs)))
    for index, (name, row) in enumerate(costs.items()):
        means, widths = (np.array([getattr(row[case], part) for case in cases]) for part in ("mean", "half_width"))
        offset = (index - (len(costs) - 1) / 2) * 0.7 / len(costs)
        axes.errorbar(
            means, np.arange(len(cases)) + offset, xerr=widths, fmt="o", ms=5, capsize=2, color=style.color(index), label=name
        )
    style.name_rows(axes, cases)
    axes.axvline(0, color="#777777", lw=0.8)
    axes.set(xlabel=_MORE, title=title)
    if len(costs) > 1:
        style.name_colors(axes)
    return figure


def draw_search(errors: Mapping[str, Mapping[float, float]], title: str) -> style.Figure:
    """The error of a block over the scale that was tried, with the best one marked.

    Args:
        errors: mean squared error by the scale's fraction of (largest magnitude / largest code), for each block by name.
        title: the takeaway.
    """
    figure, axes = style.subplots(3.0)
    for index, (name, tried) in enumerate(errors.items()):
        relative = np.array(list(tried.values())) / tried[1.0]
        axes.plot(list(tried), relative, "o-", markevery=[int(relative.argmin())], color=style.color(index), label=name)
    axes.set(xlabel="scale / (largest magnitude / 7)", ylabel="mean squared error /\nthat at 1", title=title)
    style.name_lines(axes)
    return figure


def draw_channels(largest: Mapping[str, Sequence[np.ndarray]], title: str) -> style.Figure:
    """The largest magnitude of each channel of an input and of its weights, one panel per state.

    Args:
        largest: by name of the state, a pair of arrays ``(channels,)``: input and weights.
        title: the takeaway.
    """
    figure, panels = style.subplots(0.8 + 1.5 * len(largest), len(largest), sharex=True, sharey=True, squeeze=False)
    for axes, (name, pair) in zip(panels[:, 0], largest.items(), strict=True):
        for index, (what, values) in enumerate(zip(("input", "weights"), pair, strict=True)):
            axes.semilogy(values, ".", ms=4, color=style.color(index), label=what)
        axes.set_title(name, fontsize=9, weight="normal", loc="right")
        axes.set(ylabel="largest magnitude")
    panels[-1, 0].set_xlabel("channel of the input")
    style.name_colors(panels[0, 0])
    figure.suptitle(title)
    return figure


def draw_size(points: Mapping[str, tuple[float, Cost]], title: str, *, highlight: str = "") -> style.Figure:
    """The cost of each way of storing the weights with its interval, from the smallest file to the largest.

    Args:
        points: by name, the size in MB and the cost.
        title: the takeaway.
        highlight: name of the way that the title is about.
    """
    ordered = sorted(points.items(), key=lambda point: point[1][0])
    figure, axes = style.subplots(1.0 + 0.36 * len(points))
    for row, (name, (_, paid)) in enumerate(ordered):
        axes.errorbar(paid.mean, row, xerr=paid.half_width, fmt="o", ms=5, capsize=3, color=style.color(name == highlight))
    axes.axvline(0, color="#777777", lw=0.8, zorder=0)
    style.name_rows(axes, [f"{name}\n{size:.2f} MB" for name, (size, _) in ordered])
    axes.set(xlabel=_MORE, title=title)
    return figure
