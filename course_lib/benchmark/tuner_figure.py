"""A tuner's work drawn: who won how often when each candidate was timed once, and the distribution of the times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from course_lib import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from course_lib.benchmark.tuner import Tuning


def draw_tuning(tuning: Tuning, winners: Sequence[str]) -> Figure:
    """Times of every round on the left, with the median; on the right how often each tactic won a single try.

    Args:
        tuning: the paired measurement.
        winners: what `first_impression` said, once for each repetition.
    """
    from matplotlib.ticker import LogLocator, NullFormatter

    names = list(tuning.times_ms)
    won = Counter(winners)
    figure = style.figure(9.0, 1.1 + 0.4 * len(names))
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(2, 1))
    for row, name in enumerate(names):
        times, hue = tuning.times_ms[name], style.colour(2 if name == tuning.best else 0)
        left.plot(times, [row] * len(times), "|", color=hue, alpha=0.5, ms=12)
        left.plot(tuning.medians_ms[name], row, "D", color=hue, ms=6)
    left.set_xscale("log")
    left.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    left.xaxis.set_major_formatter("{x:g}")
    left.xaxis.set_minor_formatter(NullFormatter())
    left.set_yticks(range(len(names)), names)
    left.invert_yaxis()
    left.set_xlabel("milliseconds (each round a line, the median a diamond)")
    bars = right.barh(range(len(names)), [won[name] for name in names], 0.6, color=style.colour(1))
    right.bar_label(bars, padding=3, fontsize=8)
    right.margins(x=0.2)
    right.set_xlabel(f"wins in {len(winners)} single tries")
    wrong = sum(name != tuning.best for name in winners)
    figure.suptitle(
        f"{tuning.best} has the smallest median; a single try chose another {wrong} times of {len(winners)}",
        fontsize=10,
        weight="bold",
    )
    return figure
