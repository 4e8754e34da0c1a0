"""Lecture 3: figures of memory traffic before and after fusion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from course_lib import style
from course_lib.profiling.layer_tables.boxes import GRAY, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from course_lib.profiling.layer_tables.memory_traffic import Traffic

_MB = 1e6
_PARTS = (("read", style.COLORS[0]), ("weights", style.COLORS[4]), ("written", style.COLORS[1]))
_WIDEST = 7.0  # points, of the arrow for the largest tensor
_BOX_WIDTH, _BOX_HEIGHT, _COLUMN = 2.6, 0.56, 5.2


def draw_traffic(traffic: Traffic, title: str) -> Figure:
    """One horizontal bar per round trip, in the order of execution: megabytes read, of weights, and written."""
    names = [short(round_trip.name or round_trip.operators, 40) for round_trip in traffic.round_trips]
    values = [(round_trip.read_bytes, round_trip.weights, round_trip.written_bytes) for round_trip in traffic.round_trips]
    figure = style.figure(8.0, 1.1 + 0.2 * len(names))
    axes = figure.add_subplot()
    _stacked_bars(axes, names, values)
    axes.set_title(title)
    return figure


def compare_traffic(variants: Mapping[str, Traffic], title: str) -> Figure:
    """Draw one bar per variant with its total, and next to it the number of round trips."""
    names = [f"{name}\n{traffic.launches}" for name, traffic in variants.items()]
    values = [(traffic.read_bytes, traffic.weights, traffic.written_bytes) for traffic in variants.values()]
    figure = style.figure(8.0, 1.1 + 0.5 * len(names))
    axes = figure.add_subplot()
    _stacked_bars(axes, names, values, height=0.6)
    for row, parts in enumerate(values):
        axes.text(sum(parts) / _MB, row, f"  {sum(parts) / _MB:.1f} MB", va="center", fontsize=8.5, weight="bold")
    axes.margins(x=0.12)
    axes.set_title(title)
    return figure


def _stacked_bars(axes: Axes, names: Sequence[str], values: Sequence[tuple[int, int, int]], height: float = 0.75) -> None:
    rows = range(len(names))
    left = [0.0] * len(names)
    for part, (label, hue) in enumerate(_PARTS):
        megabytes = [row[part] / _MB for row in values]
        axes.barh(rows, megabytes, height, left=left, color=hue, label=label)
        left = [start + width for start, width in zip(left, megabytes, strict=True)]
    axes.set_yticks(rows, names, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("megabytes moved in one inference")
    axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def draw_round_trips(before: Traffic, after: Traffic) -> Figure:
    """Two graphs side by side: a box is a round trip to memory, a line is a tensor that waits in memory between two of them.

    Left of a box are the bytes that it reads and writes, which add up to the total. The width of a line is the size of its tensor. A tensor
    that a later round trip reads runs next to the boxes.
    """
    rows = max(len(before.round_trips), len(after.round_trips))
    figure = style.figure(8.5, 1.2 + 0.3 * rows)
    axes = figure.add_subplot()
    largest = max(
        size for traffic in (before, after) for round_trip in traffic.round_trips for size in round_trip.writes.values()
    )
    for column, (label, traffic) in enumerate((("before", before), ("after", after))):
        left = column * _COLUMN
        _boxes(axes, traffic, left, rows / len(traffic.round_trips))
        _lines(axes, traffic, left, rows / len(traffic.round_trips), _WIDEST / largest)
        axes.text(left + _BOX_WIDTH / 2, -0.75, f"{label}: {traffic}", ha="center", fontsize=9, weight="bold", color=GRAY)
    axes.set(xlim=(-0.9, _COLUMN + _BOX_WIDTH + 1.6), ylim=(rows + 0.1, -1.3))
    axes.set_axis_off()
    factor = before.total_bytes / after.total_bytes
    axes.set_title(f"The same function moves {factor:.1f} times fewer bytes")
    return figure


def _boxes(axes: Axes, traffic: Traffic, left: float, step: float) -> None:
    from matplotlib.patches import FancyBboxPatch

    for row, round_trip in enumerate(traffic.round_trips):
        y = (row + 0.5) * step
        corners = "round,pad=0,rounding_size=0.12"
        face, edge = ("#e8f1f8", style.color(0)) if round_trip.operators else ("white", GRAY)
        box = FancyBboxPatch((left, y - _BOX_HEIGHT / 2), _BOX_WIDTH, _BOX_HEIGHT, corners, facecolor=face, edgecolor=edge)
        axes.add_patch(box)
        text = short(round_trip.operators.replace("BatchNormalization", "BatchNorm"), 32) or "(change of layout)"
        axes.text(left + _BOX_WIDTH / 2, y, text, ha="center", va="center", fontsize=7)
        axes.text(left - 0.1, y, _text(round_trip.total_bytes), ha="right", va="center", fontsize=6.5, color="#555555")


def _lines(axes: Axes, traffic: Traffic, left: float, step: float, points_per_byte: float) -> None:
    lanes: list[int] = []  # of each lane beside the boxes, the row where its last tensor ends
    for source, target, size in _tensors(traffic):
        y0, y1 = (source + 0.5) * step, (target + 0.5) * step
        if target == source + 1:
            x = left + 0.8
            xs, ys = [x, x], [y0 + _BOX_HEIGHT / 2, y1 - _BOX_HEIGHT / 2]
        else:
            lane = next((lane for lane, end in enumerate(lanes) if end <= source), len(lanes))
            lanes[lane : lane + 1] = [target]
            right = left + _BOX_WIDTH
            x = right + 0.3 + 0.7 * lane
            y0, y1 = y0 + 0.16, y1 - 0.16  # what ends and what begins at a box stay apart
            xs, ys = [right, x, x, right], [y0, y0, y1, y1]
        width = max(0.6, size * points_per_byte)
        axes.plot(xs, ys, color=style.color(1), alpha=0.6, lw=width, solid_capstyle="butt", solid_joinstyle="miter")


def _text(size: int) -> str:
    return f"{size / _MB:.1f} MB" if size >= 0.05 * _MB else f"{size / 1e3:.0f} kB"


def _tensors(traffic: Traffic) -> list[tuple[int, int, int]]:
    """Each tensor that one round trip writes and a later one reads: their places and its bytes."""
    written: dict[str, tuple[int, int]] = {}
    found = []
    for place, round_trip in enumerate(traffic.round_trips):
        found += [(written[name][0], place, written[name][1]) for name in round_trip.reads if name in written]
        written |= {name: (place, size) for name, size in round_trip.writes.items()}
    return sorted(found)


def growth(sizes: Sequence[int], variants: Mapping[str, Sequence[Traffic]], label: str, title: str) -> Figure:
    """Traffic over a size, such as the sequence length, on two logarithmic axes, one line per variant.

    Args:
        sizes: in ascending order.
        variants: for each name the traffic at each size.
        label: label of the horizontal axis, with its unit.
        title: the takeaway.
    """
    from matplotlib.ticker import NullFormatter

    figure = style.figure(7.0, 3.2)
    axes = figure.add_subplot()
    for index, (name, traffics) in enumerate(variants.items()):
        axes.loglog(sizes, [traffic.total_bytes / _MB for traffic in traffics], "o-", color=style.color(index), label=name)
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set(xlabel=label, ylabel="megabytes moved")
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    axes.set_title(title)
    return figure
