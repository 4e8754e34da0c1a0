"""Figures of single latencies, and of the construction of a confidence interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from course_lib import style

if TYPE_CHECKING:
    from course_lib.benchmark.statistics import Interval, Measurement


def draw_bootstrap(ratios: np.ndarray, medians: np.ndarray, interval: Interval) -> style.Figure:
    """Above: one measured ratio per round. Below: the medians of the resampled series. The bands hold the middle 95 % of each.

    Args:
        ratios: baseline over candidate, shape ``(rounds,)``.
        medians: one for each resampled series, shape ``(resamples,)``.
        interval: the interval computed from them.
    """
    first, last = np.percentile(ratios, (2.5, 97.5))
    figure, (above, below) = style.subplots(4.4, 2, 1, sharex=True, height_ratios=(3, 2))
    above.plot(ratios, range(len(ratios)), ".", ms=5, color=style.color(0))
    above.set_ylabel("round")
    below.hist(medians, 20, color=style.color(0))
    below.set(xlabel="baseline / candidate", ylabel="resampled series")
    spans = ((above, first, last, "single rounds"), (below, interval.low, interval.high, f"medians of {len(ratios)} rounds"))
    for axes, low, high, what in spans:
        axes.axvspan(low, high, color=style.color(1), alpha=0.25, lw=0, zorder=0)
        axes.set_title(f"95 % of {what}: {low:.2f} to {high:.2f}", fontsize=9, weight="normal", loc="left")
    room = 0.2 * (last - first)
    above.set_xlim(first - room, last + room)  # a disturbed round would squeeze the rest
    figure.suptitle(f"A median varies {(last - first) / (interval.high - interval.low):.0f} times less than one round")
    return figure


def draw_coverage(intervals: Sequence[Interval], truth: float, *, shown: int = 60) -> style.Figure:
    """Intervals of repeated experiments as vertical lines, those that miss the truth in another color.

    Args:
        intervals: one per experiment.
        truth: the true ratio.
        shown: number of drawn intervals; the title counts all.
    """
    held = [one.low <= truth <= one.high for one in intervals]
    figure, axes = style.subplots(2.8)
    for place, (one, hit) in enumerate(zip(intervals[:shown], held[:shown], strict=True)):
        axes.plot([place, place], [one.low, one.high], lw=3, color=style.color(0 if hit else 1), solid_capstyle="butt")
    axes.axhline(truth, color="black", lw=1, ls="--")
    axes.set(xlabel=f"experiment (the first {min(shown, len(intervals))} are drawn)", ylabel="interval of the ratio")
    axes.set_title(f"{sum(held)} of {len(held)} intervals hold the truth ({truth:g}); the orange ones miss it")
    return figure


_BINS = 60


def over_calls(series: Mapping[str, np.ndarray], title: str) -> style.Figure:
    """Latency over the number of the call, both axes logarithmic, one line per series.

    Args:
        series: milliseconds in the order of the calls, by name.
        title: the takeaway.
    """
    figure, axes = style.subplots(3.0)
    for index, (name, values) in enumerate(series.items()):
        axes.loglog(np.arange(1, len(values) + 1), values, "o-", ms=4, lw=1, color=style.color(index), label=name)
    axes.set(xlabel="number of the call since the engine was loaded", ylabel="latency (ms)")
    style.name_lines(axes)
    axes.set_title(title)
    return figure


def distribution(measured: Measurement, title: str) -> style.Figure:
    """Draw a histogram of latencies with a logarithmic count axis, the mean and three percentiles.

    Args:
        measured: at least 100 calls, so that a 99th percentile exists.
        title: the takeaway.

    Raises:
        ValueError: fewer calls.
    """
    values = measured.latencies_ms
    if len(values) < 100:
        raise ValueError(f"a 99th percentile needs at least 100 calls, got {len(values)}: measure longer")
    figure, axes = style.subplots(3.4)
    edges = np.geomspace(values.min(), values.max() * 1.001, _BINS)
    axes.hist(values, edges.tolist(), color="#BBBBBB")
    marks = {
        "median": measured.median_ms,
        "mean": float(values.mean()),
        "p99": measured.percentile_ms(99),
        "slowest": values.max(),
    }
    axes.set(xscale="log", yscale="log", xlabel="latency of one call (ms, logarithmic)", ylabel=f"calls, of {len(values):,}")
    hues = (style.color(0), style.color(1), "#555555", "#555555")
    style.mark_values(axes, {f"{name} {value:.2f} ms": value for name, value in marks.items()}, hues)
    axes.set_title(title)
    return figure


def schedules(panels: Mapping[str, Mapping[str, tuple[np.ndarray, np.ndarray]]], title: str) -> style.Figure:
    """Latencies over the number of the call in the whole session, one panel per way of measuring, one color per subject.

    Args:
        panels: by the panel's title, for each subject its places in the session and its latencies in milliseconds, each ``(calls,)``.
        title: the takeaway.
    """
    figure, rows = style.subplots(0.7 + 1.8 * len(panels), len(panels), sharey=True, squeeze=False)
    for axes, (name, subjects) in zip(rows[:, 0], panels.items(), strict=True):
        for index, (subject, (places, values)) in enumerate(subjects.items()):
            axes.plot(places, values, ".", ms=4, alpha=0.5, color=style.color(index))
            median = float(np.median(values))
            axes.axhline(
                median, color=style.color(index), lw=1.5, ls=("-", "--")[index % 2], label=f"{subject}: {median:.1f} ms"
            )
        axes.set_title(name, fontsize=9, weight="normal", loc="left")
        axes.set_ylabel("latency (ms)")
    highest = max(float(np.percentile(v, 99)) for subjects in panels.values() for _, v in subjects.values())
    rows[0, 0].set_ylim(0, 1.05 * highest)
    rows[-1, 0].set_xlabel("calls of the session, in order; line: median")
    for axes in rows[:, 0]:
        style.name_lines(axes)
    figure.suptitle(title)
    return figure


def batch_sweep(measured: Mapping[int, Measurement]) -> style.Figure:
    """Draw the latency of a call over the batch size, and below it the throughput over the latency of each batch.

    Args:
        measured: latencies by batch size.
    """
    sizes = list(measured)
    medians = np.array([measured[size].median_ms for size in sizes])
    slow = np.array([measured[size].percentile_ms(99) for size in sizes])
    rates = 1e3 * np.array(sizes) / medians
    figure, (above, below) = style.subplots(5.4, 2, 1)
    above.loglog(sizes, slow, "o-", color=style.color(1), label="p99")
    above.loglog(sizes, medians, "o-", color=style.color(0), label="median")
    above.loglog(sizes, medians[0] * np.array(sizes), color="#777777", lw=1, ls="--", label="n calls of batch 1")
    above.set(xlabel="batch size n", ylabel="latency of the call (ms)")
    above.set_xticks(sizes, [str(size) for size in sizes])
    above.minorticks_off()
    style.name_lines(above)
    below.plot(medians, rates, "o-", color=style.color(2))
    for size, x, y in zip(sizes, medians, rates, strict=True):
        below.annotate(str(size), (x, y), (4, -10), textcoords="offset points", fontsize=8)
    below.set(xscale="log", xlabel="latency of the call (ms)", ylabel="throughput (images/s)")
    below.margins(y=0.15)
    best = int(np.argmax(rates))
    gain, price = rates[best] / rates[0], medians[best] / medians[0]
    takeaway = f"Batch {sizes[best]}: {gain:.1f} times the throughput of batch {sizes[0]}, {price:.1f} times the latency"
    figure.suptitle(takeaway)
    return figure
