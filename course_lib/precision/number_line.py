"""Figures of number formats: their ranges, and the positions of their values on a number line."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from course_lib import style
from course_lib.precision.formats import FORMATS, Format

_POINTS = 1 << 14  # tried along a line: more numbers than a screen has pixels


def format_ranges(formats: Sequence[Format] = tuple(FORMATS.values())) -> style.Figure:
    """Draw the range from the smallest to the largest positive number of each format, on one logarithmic axis."""
    figure, axes = style.subplots(0.9 + 0.32 * len(formats))
    for row, shown in enumerate(formats):
        hue = style.color(0)
        axes.barh(row, shown.smallest_normal - shown.smallest, left=shown.smallest, color=hue, alpha=0.35, height=0.6)
        axes.barh(row, shown.largest - shown.smallest_normal, left=shown.smallest_normal, color=hue, height=0.6)
        bits = f"{shown.exponent_bits} + {shown.mantissa_bits} bits" if shown.exponent_bits else "7 bits"
        axes.annotate(bits, (1.0, row), (4, 0), xycoords=("axes fraction", "data"), textcoords="offset points", va="center")
    axes.set_xscale("log")
    axes.set_xlim(1e-46, 1e40)
    axes.set_xticks([10.0**power for power in range(-45, 40, 15)])
    style.name_rows(axes, [shown.name for shown in formats], 8)
    axes.set_xlabel("positive numbers (log); pale: subnormal, with fewer bits of mantissa")
    axes.set_title("The bits of the exponent decide the range; right: bits of exponent + mantissa", loc="left")
    return figure


def number_lines(formats: Sequence[Format], low: float, high: float) -> style.Figure:
    """Draw every number of each format between two positive ones as a tick. Ticks that are denser than pixels form a bar.

    Args:
        formats: one line each.
        low, high: ends of the interval, 0 < low < high.

    Raises:
        ValueError: the interval is empty or not positive.
    """
    if not 0 < low < high < np.inf:
        raise ValueError(f"an interval needs 0 < low < high, got {low} and {high}")
    figure, axes = style.subplots(1.0 + 0.42 * len(formats))
    counts, pixel = {shown.name: shown.count(low, high) for shown in formats}, (high - low) / 250
    most, least = max(counts, key=counts.__getitem__), min(counts, key=counts.__getitem__)
    for row, shown in enumerate(formats):
        numbers = np.unique(shown.round(np.linspace(low, high, _POINTS)))
        numbers = numbers[(numbers >= low) & (numbers <= high)]
        apart = np.diff(numbers) > pixel
        starts, ends = numbers[np.append(True, apart)], numbers[np.append(apart, True)]
        axes.barh(np.full(len(starts), row), ends - starts + pixel, 0.64, left=starts - pixel / 2,
                  color=style.color(shown.name == least))  # fmt: skip
    for row, text in zip((-0.8, *range(len(formats))), ("numbers", *(f"{count:,}" for count in counts.values())), strict=True):
        axes.annotate(text, (1.0, row), (6, 0), xycoords=("axes fraction", "data"), textcoords="offset points", va="center")
    style.name_rows(axes, [shown.name for shown in formats])
    axes.set(xlim=(low, high), xlabel=f"value, {low:g} to {high:g}; solid: denser than this picture")
    axes.set_title(f"{most} has {counts[most]:,} numbers where {least} has {counts[least]:,}", loc="left")
    return figure


def running_sums(step: float, count: int, formats: Sequence[Format]) -> style.Figure:
    """Draw the repeated addition of a small number, with every partial sum rounded to the format.

    Args:
        step: the number to add, positive.
        count: number of additions, at least one.
        formats: one curve each.

    Raises:
        ValueError: a step that is not positive, or a count below 1.
    """
    if not 0 < step < np.inf or count < 1:
        raise ValueError(f"need a positive step and a count of 1 or more, got {step} and {count}")
    figure, axes = style.subplots(3.2)
    stuck = []
    for index, shown in enumerate(formats):
        sums = np.zeros(count + 1)
        for at in range(count):
            sums[at + 1] = shown.round(sums[at] + step)
        axes.plot(sums, color=style.color(index), lw=2, label=f"{shown.name}: {sums[-1]:.6g}")
        stuck += [f"{shown.name} at {sums[-1]:g}"] if sums[-1] == sums[-2] else []
    axes.plot([0, count], [0, count * step], color="#222222", lw=1, ls="--", label=f"exact: {count * step:.6g}")
    axes.set(xlabel=f"how often {step:g} was added", ylabel="running sum", xlim=(0, count), ylim=(0, None))
    style.name_lines(axes)
    takeaway = f"The sum stops growing: {', '.join(stuck)}" if stuck else "No sum has stopped growing"
    axes.set_title(takeaway, loc="left")
    return figure
