"""The figure of layer timings: the longest layers as bars, colored by what they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from course_lib import style
from course_lib.profiling.layer_tables.boxes import short

if TYPE_CHECKING:
    from course_lib.profiling.layer_tables.layer_times import LayerTime, LayerTimings

_GRAY = "#bbbbbb"
_HUES = len(style.COLORS) - 1  # all but black, which is the color of the text
_LONGEST_NAME = 32


def time_bars(timings: LayerTimings, n: int = 12, color: Literal["operator", "dtype"] = "operator") -> style.Figure:
    """One bar for each of the `n` longest layers, longest on top, and a hatched one for all the others together.

    Args:
        timings: layer times. Without a layer table, all bars have the same color.
        n: at least 1.
        color: by the ONNX operators inside a layer, or by the datatypes of its computation. The group with the longest total time
            is first in the legend; beyond six groups, bars are gray.
    """
    shown = timings.heaviest(n)
    rest = len(timings.names) - len(shown)
    rest_ms = max(0.0, timings.total_ms - sum(layer.ms for layer in shown))
    sums = timings.by_operator() if color == "operator" else timings.by_dtype()
    hues = {group: style.color(place) if place < _HUES else _GRAY for place, group in enumerate(sums)}

    def group(layer: LayerTime) -> str:
        return timings.operators(layer) if color == "operator" else layer.dtypes

    rows = len(shown) + bool(rest)
    figure, axes = style.subplots(1.4 + 0.26 * rows)
    total, edge = timings.total_ms or 1.0, 1.35 * max((layer.ms for layer in shown), default=1.0)
    for row, layer in enumerate(shown):
        axes.barh(row, layer.ms, color=hues[group(layer)], height=0.7)
        told = f"{layer.ms:.3f}, {layer.share:.0%}"
        axes.annotate(told, (layer.ms, row), (5, 0), textcoords="offset points", va="center", fontsize=8)
    if rest:
        off = ", beyond the scale" if rest_ms > edge else ""
        axes.barh(len(shown), min(rest_ms, edge), color="white", edgecolor=_GRAY, hatch="//", height=0.7)
        label = f"{rest_ms:.3f}, {rest_ms / total:.0%}{off}"
        axes.text(0.02 * edge, len(shown), label, va="center", fontsize=8, backgroundcolor="white")
    axes.set_yticks(
        range(rows), [short(layer.name, _LONGEST_NAME) for layer in shown] + [f"{rest} others"] * bool(rest), fontsize=8
    )
    axes.set(xlim=(0, edge), ylim=(rows - 0.4, -0.6), xlabel="share of all layers, time of one inference (ms)")
    if timings.table is not None:
        seen = {group(layer) for layer in shown}
        for name, ms in sums.items():
            if name in seen and hues[name] != _GRAY:
                axes.barh([0], [0], color=hues[name], label=f"{short(name, _LONGEST_NAME)}: {ms / total:.0%}")
        style.name_colors(axes)
    axes.set_title(timings.takeaway())
    return figure
