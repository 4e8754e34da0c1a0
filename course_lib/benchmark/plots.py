"""Figures of measurements. Each has axes, units and a takeaway as its title."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from course_lib import style

if TYPE_CHECKING:
    from course_lib.benchmark.comparison import Comparison


def latencies(comparison: Comparison, about: str | None = None) -> style.Figure:
    """One row per subject: every latency as a faint dot, the median as a bar, and the speedup over the baseline.

    The title states the result of the subject `about`, by default of the fastest.
    """
    names = list(comparison.measurements)
    named = about or max(comparison.speedups, key=lambda name: comparison.speedups[name].median, default="")
    figure = style.figure(0.9 + 0.6 * len(names))
    axes = figure.add_subplot()
    spread = np.random.default_rng(0)
    everything = np.concatenate([m.latencies_ms for m in comparison.measurements.values()])
    # the slowest percent (a busy machine) would squeeze everything else to the left edge
    end = 1.05 * float(np.percentile(everything, 99))
    for row, name in enumerate(reversed(names)):
        values = comparison.measurements[name].latencies_ms
        color = style.color(name == named)
        axes.plot(values, row + spread.uniform(-0.25, 0.25, len(values)), ".", ms=2, alpha=0.25, color=color)
        median = comparison.measurements[name].median_ms
        axes.plot([median, median], [row - 0.34, row + 0.34], lw=2.5, color=color)
        label = f"{median:.2f} ms"
        if name in comparison.speedups:
            label += f", {comparison.speedups[name]}"
        axes.annotate(label, (median, row + 0.36), ha="left" if median < end / 2 else "right", va="bottom", fontsize=8)
    axes.set_yticks(range(len(names)), reversed(names))
    axes.set_ylim(-0.5, len(names) - 0.2)
    axes.set_xlim(0, end)
    axes.set_xlabel("latency of one call (ms)")
    axes.set_title(
        f"{named}: {comparison.speedups[named]} the speed of {comparison.baseline}"
        if named
        else f"{comparison.baseline}: half of the calls take less than {comparison.measurements[comparison.baseline].median_ms:.2f} ms"
    )
    return figure
