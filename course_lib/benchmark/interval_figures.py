"""How a confidence interval is made and what it promises, drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from course_lib import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from course_lib.benchmark.statistics import Interval


def draw_bootstrap(ratios: np.ndarray, medians: np.ndarray, interval: Interval) -> Figure:
    """Left: one ratio a round, as measured. Right: the medians of the resampled series, and the interval that holds their middle.

    Args:
        ratios: baseline over candidate, shape ``(rounds,)``.
        medians: one of each resampled series, shape ``(resamples,)``.
        interval: what was made of them.
    """
    figure = style.figure(9.0, 3.2)
    left, right = figure.subplots(1, 2, width_ratios=(2, 1))
    left.plot(ratios, ".", ms=4, alpha=0.5, color=style.colour(0), label="one round")
    left.axhspan(interval.low, interval.high, color=style.colour(1), alpha=0.3, lw=0)
    left.axhline(interval.median, color=style.colour(1), label=f"median {interval.median:.3f}")
    left.set(xlabel="round", ylabel="paired ratio: baseline / candidate")
    low, high = np.percentile(ratios, (2, 98))  # a disturbed round would squeeze the rest
    room = 0.15 * (high - low)
    left.set_ylim(low - room, high + room)
    left.legend(frameon=False, loc="upper right")
    right.hist(medians, 40, orientation="horizontal", color=style.colour(0))
    right.axhspan(interval.low, interval.high, color=style.colour(1), alpha=0.3, lw=0, label="the middle 95 %")
    right.set(xlabel=f"resampled series, of {len(medians):,}", ylabel="their median (enlarged)")
    right.legend(frameon=False, loc="upper right")
    right.margins(y=0.25)
    takeaway = f"Single rounds scatter, their median hardly does: {interval.low:.3f} to {interval.high:.3f}"
    figure.suptitle(takeaway, fontsize=10, weight="bold")
    return figure


def draw_coverage(intervals: Sequence[Interval], truth: float, *, shown: int = 60) -> Figure:
    """Intervals of repeated experiments as vertical lines, those that miss the truth in another colour.

    Args:
        intervals: one an experiment.
        truth: the ratio that all of them try to find.
        shown: how many are drawn; the title counts all.
    """
    held = [one.low <= truth <= one.high for one in intervals]
    figure = style.figure(8.0, 2.8)
    axes = figure.add_subplot()
    for place, (one, hit) in enumerate(zip(intervals[:shown], held[:shown], strict=True)):
        axes.plot([place, place], [one.low, one.high], lw=3, color=style.colour(0 if hit else 1), solid_capstyle="butt")
    axes.axhline(truth, color="black", lw=1, ls="--")
    axes.set(xlabel=f"experiment (the first {min(shown, len(intervals))} are drawn)", ylabel="interval of the ratio")
    axes.set_title(f"{sum(held)} of {len(held)} intervals hold the truth ({truth:g}); the orange ones miss it")
    return figure
