"""A race drawn for the one who was in it: the latencies of every subject, and the ratios beside the paces that earn points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from course_lib import style
from course_lib.benchmark import Comparison, Interval
from course_lib.grading.reports import pages
from course_lib.labs.framework.racing import Tiers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SEED = 0  # as the judge's, so that the page shows the very intervals that decided
_NAMES = {"eager": "PyTorch", "yours": "your engine", "reference": "reference"}
_SLOWEST = 99  # percentile up to which latencies are drawn: a busy machine's last percent would squeeze the rest


@dataclass(frozen=True)
class Ratio:
    """How fast the submission was beside another subject, and the boundaries of the tiers, None where the lab has none."""

    over: str
    interval: Interval
    partial: float | None = None
    full: float | None = None


def ratios(comparison: Comparison, paces: Tiers | None) -> tuple[Ratio, ...]:
    """The submission against PyTorch eager (or whatever the baseline is) and against the reference."""
    found = []
    for name in dict.fromkeys((comparison.baseline, "reference")):
        if name not in comparison.measurements:
            continue
        which = {"eager": "over_eager", "reference": "of_reference"}.get(name)
        bounds = [getattr(pace, which) for pace in (paces.partial, paces.full)] if paces and which else [None, None]
        found.append(Ratio(name, comparison.ratio(name, "yours", seed=_SEED), *bounds))
    return tuple(found)


def latencies(comparison: Comparison) -> tuple[Figure, str]:
    """How latencies are distributed, and the same in words."""
    figure = style.figure(0.8 + 0.6 * len(comparison.measurements), width=pages.FIGURE_WIDTH)
    axes = figure.add_subplot()
    names = list(comparison.measurements)
    everything = np.concatenate(list(comparison.latencies().values()))
    end = float(np.percentile(everything, _SLOWEST))
    first = float(everything.min())
    room = 0.05 * (end - first) + 0.01 * first  # between the axis and the fastest call
    edges = np.linspace(first - room, end + room, 121)
    for row, name in enumerate(reversed(names)):
        measured = comparison.measurements[name]
        color = pages.BLUE if name == "yours" else pages.GRAY
        counts, _ = np.histogram(measured.latencies_ms, edges)
        axes.fill_between(edges[:-1], row, row + 0.62 * counts / max(counts.max(), 1), step="post", color=color, lw=0)
        axes.plot([measured.median_ms] * 2, [row, row + 0.66], lw=1.5, color="black")
        side, shift = ("left", -2) if measured.median_ms < edges.mean() else ("right", 2)  # the label stays in the figure
        place = measured.median_ms, row + 0.7
        axes.annotate(f"median {measured.median_ms:.3g} ms", place, (shift, 0), textcoords="offset points", ha=side, fontsize=8)
    beyond = int((everything > edges[-1]).sum())
    axes.set_yticks([row + 0.25 for row in range(len(names))], [_NAMES.get(name, name) for name in reversed(names)])
    axes.set(
        ylim=(-0.1, len(names) + 0.05),
        xlim=(edges[0], edges[-1]),
        xlabel="latency of one call (ms)" + f"; {beyond} slower, not drawn" * bool(beyond),
    )
    axes.locator_params(axis="x", prune="upper")  # a number at the edge would be cut
    axes.set_title("How long a call takes")
    medians = ", ".join(
        f"{_NAMES.get(name, name)} {measured.median_ms:.3g} ms" for name, measured in comparison.measurements.items()
    )
    return figure, f"Median latencies: {medians}."


def intervals(found: tuple[Ratio, ...]) -> tuple[Figure, str]:
    """The ratios with their 95 % intervals and where points begin, and the same in words."""
    figure = style.figure(0.8 + 0.9 * len(found), width=pages.FIGURE_WIDTH)
    axes = figure.add_subplot()
    for row, ratio in enumerate(reversed(found)):
        one = ratio.interval
        axes.plot([one.low, one.high], [row, row], lw=7, color=pages.BLUE, solid_capstyle="butt", alpha=0.6)
        axes.plot(one.median, row, "|", ms=11, mew=1.5, color="black")
        axes.plot([1, 1], [row - 0.2, row + 0.1], lw=0.8, ls=":", color="black")  # short: it must not cross words
        axes.annotate(str(one), (one.median, row + 0.13), ha="center", va="bottom", fontsize=8, annotation_clip=False)
        if ratio.partial is not None and ratio.full is not None:
            for bound, color in ((ratio.partial, style.color(4)), (ratio.full, style.color(2))):
                axes.plot([bound, bound], [row - 0.2, row + 0.1], lw=2, color=color)
            label = f"part of the points from {ratio.partial:g}, all from {ratio.full:g}"
            axes.text(0.5, row - 0.27, label, ha="center", va="top", fontsize=8, transform=axes.get_yaxis_transform())
    axes.set_yticks(range(len(found)), [f"against\n{_NAMES.get(ratio.over, ratio.over)}" for ratio in reversed(found)])
    axes.set(ylim=(-0.75, len(found) - 0.45), xlabel="times as fast (bar: 95 % interval, line: median)")
    axes.margins(x=0.35)  # room for the numbers above the outermost intervals
    axes.set_title("Your speed, and where points begin")
    return figure, " ".join(map(sentence, found))


def sentence(ratio: Ratio) -> str:
    """The ratio, and where points begin."""
    text = f"Your speed divided by that of {'the ' * (ratio.over == 'reference')}{_NAMES.get(ratio.over, ratio.over)}: {ratio.interval}."
    if ratio.partial is None or ratio.full is None:
        return text
    return f"{text} Part of the points from {ratio.partial:g}, all from {ratio.full:g}."
