"""Figures of a class: how points are distributed, and how hard each task was."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import numpy as np

from course_lib import style
from course_lib.grading.reports.class_report import TIERS, ClassReport
from course_lib.grading.reports.pages import BLUE, FIGURE_WIDTH
from course_lib.labs.framework.criteria import Tier

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# From dark to light, so that they are told apart without their hues; the first takes white words, the others dark ones.
_COLORS = dict(zip(TIERS, ("#006B4F", "#C98200", "#F2B8A0", "#5AA7DC", "#DDDDDD"), strict=True))
_WIDE = 8  # percent from which a part of a bar has room for its number


def distribution(report: ClassReport) -> tuple[Figure, str]:
    """Final points of the class, and the same in words."""
    from matplotlib.ticker import MaxNLocator

    points = np.array([one.final for one in report.submissions])
    most = max(one.max_score for one in report.submissions)
    drawn = style.figure(2.6, width=FIGURE_WIDTH)
    axes = drawn.add_subplot()
    values, counts = np.unique(np.round(2 * points) / 2, return_counts=True)  # one bar for each half point
    axes.bar(values, counts, 0.45, color=BLUE)
    axes.axvline(float(np.median(points)), color="black", ls="--", lw=1)
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_locator(MaxNLocator(7, integer=True))
    axes.set(xlim=(-0.5, max(most, points.max()) + 0.5), xlabel=f"final points of {most:g}", ylabel="submissions")
    axes.set_title(f"The median is {np.median(points):g} of {most:g} points")
    ranges = ", ".join(f"{count} with {low:g}" for count, low in zip(counts, values, strict=True))
    return drawn, f"Histogram of final points, median {np.median(points):g} of {most:g}. Submissions: {ranges}."


def difficulty(report: ClassReport) -> tuple[Figure, str]:
    """For each task the share of the class in each tier, and the same in words."""
    shares = report.difficulty()
    drawn = style.figure(0.9 + 0.55 * len(shares), width=FIGURE_WIDTH)
    axes = drawn.add_subplot()
    left = np.zeros(len(shares))
    for tier in TIERS:
        width = np.array([100 * found[tier] for found in shares.values()])
        if width.any():
            bars = axes.barh(
                range(len(shares)), width, 0.5, left=left, color=_COLORS[tier], edgecolor="#888888", lw=0.5, label=tier
            )
            words = [f"{share:.0f} %" if share >= _WIDE else "" for share in width]
            axes.bar_label(bars, words, label_type="center", fontsize=8, color="white" if tier == Tier.FULL else "#111111")
            left += width
    for row, title in enumerate(shares):
        axes.annotate(textwrap.shorten(title, 52, placeholder=" ..."), (0, row - 0.33), va="bottom")
    axes.set(xlim=(0, 100), xlabel="share of submissions (%)", ylim=(len(shares) - 0.6, -0.8), yticks=())
    axes.spines["left"].set_visible(False)
    drawn.legend(frameon=False, ncols=5, loc="outside lower center", fontsize=8, handlelength=1, columnspacing=1)
    hardest = min(shares, key=lambda title: shares[title][Tier.FULL])
    axes.set_title(f"Hardest: {textwrap.shorten(hardest, 34, placeholder=' ...')}")
    told = ". ".join(
        f"{title}: " + ", ".join(f"{100 * share:.0f} % {tier}" for tier, share in found.items() if share)
        for title, found in shares.items()
    )
    return drawn, f"Share of the class in each tier. {told}."
