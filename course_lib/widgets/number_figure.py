"""One number in one format: its bits, its neighbours, and where it lies in the ranges of all formats."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from course_lib import style
from course_lib.percent import in_percent
from course_lib.precision.formats import FORMATS, Format, format_named
from course_lib.precision.number_line import draw_ranges

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PARTS = (("sign", "#DDDDDD"), ("exponent", style.COLOURS[5]), ("mantissa", style.COLOURS[4]))
_NEIGHBOURS = 5  # spacings to either side of the value that are drawn


def number_figure(value: float, name: str, scale: float) -> Figure:
    """The bits of ``value`` in a format, the numbers around it, and the range of every format.

    Args:
        value: any finite number.
        name: a key of `course_lib.precision.formats.FORMATS`.
        scale: step of INT8; the other formats have none.

    Raises:
        ValueError: an unknown format, a value that is not finite, or a scale that is not positive.
    """
    shown = _checked(value, name, scale)
    figure = style.figure(8.5, 5.2)
    bits, around, ranges = figure.subplots(3, 1, height_ratios=[0.75, 0.9, 2.2])
    _draw_bits(bits, shown, value)
    _draw_neighbours(around, shown, value)
    draw_ranges(ranges, [shown if known == name else FORMATS[known] for known in FORMATS], chosen=name)
    if value:
        ranges.axvline(abs(value), color="black", lw=1.2)
    ranges.set_xlabel("positive numbers of every format (log); the line is the size of the value")
    figure.suptitle(_takeaway(shown, value), fontsize=10, weight="bold")
    return figure


def number_text(value: float, name: str, scale: float) -> str:
    """What the figure shows in a sentence: nearest number, error, spacing and range. Arguments and errors as there."""
    shown = _checked(value, name, scale)
    nearest = float(shown.round(value))
    stored = f"{name} stores {value:.9g} as {nearest:.9g}"
    if math.isfinite(nearest):
        stored += f", off by {abs(nearest - value):.3g}"
        stored += f" ({abs(nearest - value) / abs(value):.2g} of the value)" if value else ""
        stored += f"; its neighbours are {shown.spacing(nearest):.3g} away"
    normal = "" if name == "INT8" else f", with full precision from {shown.smallest_normal:.3g}"
    return f"{stored}. Positive numbers of {name}: {shown.smallest:.3g} to {shown.largest:.6g}{normal}."


def _checked(value: float, name: str, scale: float) -> Format:
    if not math.isfinite(value):
        raise ValueError(f"the value must be finite, got {value}")
    return format_named(name, scale)


def _takeaway(shown: Format, value: float) -> str:
    nearest = float(shown.round(value))
    if not math.isfinite(nearest):
        return f"{value:.6g} is beyond {shown.name}: the largest number is {shown.largest:.6g}, so a cast gives {nearest:g}"
    if shown.name == "INT8" and not -128.5 * shown.smallest <= value <= 127.5 * shown.smallest:
        return f"{value:.6g} is beyond INT8 in steps of {shown.smallest:.3g}: it is clipped to {nearest:.6g}"
    if value and not nearest:
        return f"{value:.6g} is too small for {shown.name}: it becomes 0"
    subnormal = shown.name != "INT8" and 0 < abs(nearest) < shown.smallest_normal
    error = abs(nearest - value) / abs(value) if value else 0.0
    end = ", in a subnormal number with few bits left" if subnormal else ""
    return f"{shown.name} turns {value:.6g} into {nearest:.6g}: {in_percent(error)} off{end}"


def _draw_bits(axes: Axes, shown: Format, value: float) -> None:
    from matplotlib.patches import Rectangle

    parts = shown.bits(value)
    size, place = min(1.0, 20 / sum(map(len, parts))), 0.0
    for (part, hue), bits in zip(_PARTS, parts, strict=True):
        part = "integer, two's complement" if shown.name == "INT8" and part == "mantissa" else part
        for bit in bits:
            axes.add_patch(Rectangle((place, 0), size, 1, facecolor=hue, edgecolor="white"))
            axes.text(place + size / 2, 0.5, bit, ha="center", va="center", fontsize=9, family="monospace")
            place += size
        if bits:
            count = f" ({len(bits)})" if len(bits) > 1 else ""
            axes.text(place - size * len(bits) / 2, 1.15, f"{part}{count}", ha="center", va="bottom", fontsize=8)
    axes.set(xlim=(0, 20), ylim=(0, 1.9))
    axes.set_axis_off()


def _draw_neighbours(axes: Axes, shown: Format, value: float) -> None:
    """The numbers of the format near the value, which is an arrow; beyond the range, near the range's end."""
    nearest = float(shown.round(value))
    stored = math.isfinite(nearest)
    centre = nearest if stored else math.copysign(shown.largest, value)
    step = shown.spacing(centre)
    near = np.unique(shown.round(centre + step / 2 * np.arange(-2 * _NEIGHBOURS, 2 * _NEIGHBOURS + 1)))
    near = near[np.isfinite(near)] - centre  # around 0: a thousand and a thousandth more would share an axis label
    axes.vlines(near / step, 0, 1, color=style.colour(0), lw=1.5)
    low, high = -_NEIGHBOURS, _NEIGHBOURS
    at = min(max((value - centre) / step, low + 0.15), high - 0.15)
    beyond = "" if low < (value - centre) / step < high else ", far outside"
    arrow = {"arrowstyle": "-|>", "color": style.colour(1), "lw": 1.8}
    side = "center" if not beyond else "left" if at < 0 else "right"
    label = f"value{beyond}"
    axes.annotate(label, (at, 0.55), (at, 1.35), ha=side, va="bottom", fontsize=8, color=style.colour(1), arrowprops=arrow)
    if stored:
        axes.vlines([0], 0, 1, color=style.colour(2), lw=4)
    axes.set(xlim=(low, high), ylim=(0, 1.9), yticks=[])
    axes.spines["left"].set_visible(False)
    origin = "the nearest one (green)" if stored else "the last one"
    axes.set_xlabel(f"numbers of {shown.name} around it, counted from {origin}, {centre:.6g}, in steps of {step:.3g}")
