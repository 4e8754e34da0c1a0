"""Figures of a class: how points are distributed, how hard each task was, and speed against the quality of the answers."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import numpy as np

from course_lib import style
from course_lib.grading.reports.class_report import TIERS, ClassReport

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLORS = {"full": 2, "partial": 4, "none": 1, "inconclusive": 3, "ungraded": 5}  # of `style.color`
_BINS = 10
_NAMED = 12  # points that have room for a name beside them; the others tell theirs when pointed at


def distribution(report: ClassReport) -> tuple[Figure, str]:
    """Final points of the class, and the same in words."""
    from matplotlib.ticker import MaxNLocator

    points = np.array([one.final for one in report.submissions])
    most = max(one.max_score for one in report.submissions)
    drawn = style.figure(4.4, 2.8)
    axes = drawn.add_subplot()
    counts, edges = np.histogram(points, _BINS, (0, most))
    axes.bar(edges[:-1], counts, np.diff(edges), align="edge", color=style.color(0), edgecolor="white", lw=0.5)
    axes.axvline(float(np.median(points)), color="black", ls="--", lw=1)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel=f"final points of {most:g}", ylabel="submissions")
    axes.set_title(f"Half of the class has {np.median(points):g} points or more")
    ranges = ", ".join(f"{n} from {low:g} to {high:g}" for n, low, high in zip(counts, edges, edges[1:], strict=False) if n)
    return drawn, f"Histogram of final points, median {np.median(points):g} of {most:g}. Submissions: {ranges}."


def difficulty(report: ClassReport) -> tuple[Figure, str]:
    """For each task the share of the class in each tier, and the same in words."""
    shares = report.difficulty()
    drawn = style.figure(4.8, 1.4 + 0.42 * len(shares))
    axes = drawn.add_subplot()
    left = np.zeros(len(shares))
    for tier in TIERS:
        width = np.array([100 * found[tier] for found in shares.values()])
        if width.any():
            axes.barh(range(len(shares)), width, left=left, color=style.color(_COLORS[tier]), label=tier)
            left += width
    axes.set_yticks(range(len(shares)), [textwrap.fill(title, 26) for title in shares])
    axes.invert_yaxis()
    axes.set(xlim=(0, 100), xlabel="share of submissions (%)")
    drawn.legend(frameon=False, ncols=3, loc="outside lower center", fontsize=8)
    hardest = min(shares, key=lambda title: shares[title]["full"])
    axes.set_title(f"Hardest: {textwrap.shorten(hardest, 38)}")
    told = ". ".join(
        f"{title}: " + ", ".join(f"{100 * share:.0f} % {tier}" for tier, share in found.items() if share)
        for title, found in shares.items()
    )
    return drawn, f"Share of the class in each tier. {told}."


def scatter(report: ClassReport) -> tuple[Figure, str, dict[str, str]] | None:
    """Speed relative to the reference against the quality of the answers; None if no submission has both.

    Returns:
        The figure, the same in words, and whose each point is, by its ``gid``.
    """
    both = [(one, one.of_reference, one.quality) for one in report.submissions if one.of_reference and one.quality is not None]
    if not both:
        return None
    drawn = style.figure(6.5, 3.4)
    axes = drawn.add_subplot()
    speeds = np.array([speed.median for _, speed, _ in both])
    names = {}
    for number, (one, speed, quality) in enumerate(both):
        axes.plot([quality, quality], [speed.low, speed.high], color=style.color(5), lw=1)
        axes.plot(quality, speed.median, "o", ms=4, color=style.color(0), gid=f"submission-{number}")
        names[f"submission-{number}"] = f"{one.student}: {quality:.4g}, {speed}"
        if len(both) <= _NAMED:
            axes.annotate(one.student, (quality, speed.median), (4, 3), textcoords="offset points", fontsize=7)
    axes.axhline(1, color="black", ls=":", lw=0.8)
    axes.set(xlabel=report.quality, ylabel="speed relative to the reference")
    axes.set_title(f"{len(both)} raced, at {speeds.min():.2f} to {speeds.max():.2f} of the reference's speed")
    return drawn, f"Speed relative to the reference against {report.quality}. {'; '.join(names.values())}.", names
