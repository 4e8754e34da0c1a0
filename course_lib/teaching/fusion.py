"""Lecture 3: figures of memory traffic before and after fusion."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from course_lib import style
from course_lib.profiling.layer_tables.boxes import GRAY, short

if TYPE_CHECKING:
    from course_lib.profiling.layer_tables.memory_traffic import RoundTrip, Traffic

_MB = 1e6
_PARTS = (("read", style.COLORS[0]), ("weights", style.COLORS[2]), ("written", style.COLORS[1]))
_LEFT, _RIGHT, _WIDTH = 0.0, 2.2, 2.1  # of the two columns of boxes


def draw_traffic(traffic: Traffic, title: str) -> style.Figure:
    """One horizontal bar per round trip, in the order of execution: megabytes read, of weights, and written."""
    names = [(trip.name or trip.operators).strip("/").replace("Normalization", "Norm") for trip in traffic.round_trips]
    names = [re.sub(r"(\w+)/(?=\1\.)", "", name) for name in names]  # torch.onnx writes shortcut/shortcut.0
    values = [(round_trip.read_bytes, round_trip.weights, round_trip.written_bytes) for round_trip in traffic.round_trips]
    figure, axes = style.subplots(1.2 + 0.2 * len(names))
    _stacked_bars(axes, [short(name, 28) for name in names], values)
    axes.set_title(title)
    return figure


def compare_traffic(variants: Mapping[str, Traffic], title: str) -> style.Figure:
    """Draw one bar per variant with its total, and next to it the number of round trips."""
    names = [f"{name}\n{traffic.launches}" for name, traffic in variants.items()]
    values = [(traffic.read_bytes, traffic.weights, traffic.written_bytes) for traffic in variants.values()]
    figure, axes = style.subplots(1.2 + 0.5 * len(names))
    _stacked_bars(axes, names, values, height=0.6)
    for row, parts in enumerate(values):
        total = sum(parts) / _MB  # the offset, not a space: SVG drops spaces before a text
        axes.annotate(
            f"{total:.1f} MB", (total, row), (5, 0), textcoords="offset points", va="center", fontsize=8.5, weight="bold"
        )
    axes.margins(x=0.12)
    axes.set_title(title)
    return figure


def _stacked_bars(axes: style.Axes, names: Sequence[str], values: Sequence[tuple[int, int, int]], height: float = 0.75) -> None:
    rows = range(len(names))
    left = [0.0] * len(names)
    for part, (label, hue) in enumerate(_PARTS):
        megabytes = [row[part] / _MB for row in values]
        axes.barh(rows, megabytes, height, left=left, color=hue, label=label)
        left = [start + width for start, width in zip(left, megabytes, strict=True)]
    axes.set_yticks(rows, names, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("megabytes moved in one inference")
    style.name_colors(axes)


def draw_round_trips(before: Traffic, after: Traffic, *, operators: int = 10) -> style.Figure:
    """The first operators on the left, each as a kernel; on the right, level with its operators, each kernel of a build.

    Next to a name are the megabytes that it reads and writes. The last line has those that are not drawn, and the bars the sums.

    Args:
        before: of a model, `node_traffic`.
        after: of a build of that model, `kernel_traffic`.
        operators: kernels are drawn until they hold this many operators.
    """
    owner = {node: place for place, trip in reversed([*enumerate(after.round_trips)]) for node in trip.nodes}
    parts = [[trip for trip in before.round_trips if owner.get(trip.name) == place] for place in range(len(after.round_trips))]
    drawn = sum(1 for place in range(len(parts)) if sum(map(len, parts[:place])) < operators)
    rows = sum(max(1, len(part)) for part in parts[:drawn])
    figure, axes = style.subplots(1.3 + 0.22 * rows)
    y = 0
    for trip, part in zip(after.round_trips[:drawn], parts, strict=False):
        height = max(1, len(part))
        _box(axes, _RIGHT, y, height, trip, style.COLORS[1] if part else GRAY)
        for row, operator in enumerate(part):
            _box(axes, _LEFT, y + row, 1, operator, style.COLORS[0])
        y += height
    shown = (
        [trip.total_bytes for part in parts[:drawn] for trip in part],
        [trip.total_bytes for trip in after.round_trips[:drawn]],
    )
    sides = (
        (_LEFT, before, "kernels, unfused", style.COLORS[0]),
        (_RIGHT, after, "kernels of TensorRT", style.COLORS[1]),
    )
    for (left, traffic, what, hue), sizes in zip(sides, shown, strict=True):
        if rest := len(traffic.round_trips) - len(sizes):
            axes.text(left + 0.06, y + 0.4, f"and {rest} more", va="center", color=GRAY)
            _megabytes(axes, left, y + 0.4, traffic.total_bytes - sum(sizes))
        axes.text(left, -0.45, f"{len(traffic.round_trips)} {what}", weight="bold", va="center")
        width = _WIDTH * traffic.total_bytes / max(before.total_bytes, after.total_bytes)
        axes.barh(y + 1.7, width, 0.8, left=left, color=hue)
        inside = width > 0.4 * _WIDTH
        place, ink = (left, "white") if inside else (left + width, "black")
        axes.text(place + 0.06, y + 1.7, _text(traffic.total_bytes), fontsize=9, weight="bold", va="center", color=ink)
    axes.set(xlim=(_LEFT - 0.02, _RIGHT + _WIDTH + 0.02), ylim=(y + 2.2, -0.9))
    axes.set_axis_off()
    axes.set_title(f"TensorRT's fused kernels move {100 - 100 * after.total_bytes / before.total_bytes:.0f} % fewer bytes")
    return figure


def _box(axes: style.Axes, left: float, y: float, height: int, trip: RoundTrip, hue: str) -> None:
    from matplotlib.colors import to_rgba
    from matplotlib.patches import Rectangle

    name = trip.operators.replace("BatchNormalization", "BatchNorm") or "new layout"
    lines = textwrap.wrap(short(name, 17 * height), 17)
    axes.add_patch(Rectangle((left, y + 0.06), _WIDTH, height - 0.12, facecolor=to_rgba(hue, 0.13), edgecolor=hue, lw=1))
    axes.text(left + 0.06, y + height / 2, "\n".join(lines), va="center")
    _megabytes(axes, left, y + height / 2, trip.total_bytes)


def _megabytes(axes: style.Axes, left: float, y: float, size: int) -> None:
    axes.text(left + _WIDTH - 0.06, y, _text(size), va="center", ha="right")


def _text(size: int) -> str:
    return f"{size / _MB:.1f} MB" if size >= 0.05 * _MB else f"{size / 1e3:.0f} kB"


def growth(sizes: Sequence[int], variants: Mapping[str, Sequence[Traffic]], label: str, title: str) -> style.Figure:
    """Traffic over a size, such as the sequence length, on two logarithmic axes, one line per variant.

    Args:
        sizes: in ascending order.
        variants: for each name the traffic at each size.
        label: label of the horizontal axis, with its unit.
        title: the takeaway.
    """
    figure, axes = style.subplots(3.2)
    for index, (name, traffics) in enumerate(variants.items()):
        axes.loglog(sizes, [traffic.total_bytes / _MB for traffic in traffics], "o-", color=style.color(index), label=name)
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.set(xlabel=label, ylabel="megabytes moved")
    axes.set_title(title)
    style.name_lines(axes)
    return figure
