"""Two layer tables in one picture: kernels before on the left, ONNX nodes in the middle, kernels after on the right."""

from __future__ import annotations

import textwrap
from collections import defaultdict
from collections.abc import Collection, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from course_lib import style
from course_lib.profiling.layer_tables.boxes import GRAY, KERNEL_ROW, ROW, band, box, chosen, nodes_of, short, slices, stacked
from course_lib.profiling.layer_tables.dtypes import joined, traits
from course_lib.profiling.layer_tables.table_diff import TableDiff, diff

if TYPE_CHECKING:
    from course_lib.engines import Layer, LayerTable

_SIDES, _NODE = ((0.0, 4.8), (9.2, 14.0)), (5.2, 8.8)  # left and right edges of the columns
_INCHES_PER_ROW = 0.26
_HUES = {  # the narrowest type that a kernel reads decides
    "FP8": style.COLORS[3], "INT8": style.COLORS[2], "UINT8": style.COLORS[2],
    "FP16": style.COLORS[1], "BF16": style.COLORS[4], "FP32": style.COLORS[0],
}  # fmt: skip
_OTHER = "#999999"
_STRONG, _FAINT = 0.55, 0.15


def draw_before_after(before: LayerTable, after: LayerTable, nodes: str | Collection[str] | None = None) -> style.Figure:
    """Draw the kernels of two plans with bands between those that hold the same ONNX nodes.

    Colors are datatypes, so a kernel that changed its type changes its color from left to right. Bands are strong if kernels
    merged, split, appeared or vanished, and faint if one kernel before is one kernel after. Nodes without a kernel on either side
    are left out. A node with a dotted border is in only one of the graphs. A kernel with a dashed border has no ONNX node.

    Args:
        before, after: the tables, of any backends.
        nodes: as in `draw`.

    Raises:
        ValueError: a table has no kernels, or no node is left to draw.
    """
    compared = diff(before, after)
    order = _merged_order(before, after)
    running = {node for table in (before, after) for kernel in table.kernels for node in kernel.onnx_nodes}
    names = chosen([node for node in order if node in running], nodes)
    shown = set(names)
    sides = [[k for k in table.kernels if nodes is None or not shown.isdisjoint(k.onnx_nodes)] for table in (before, after)]
    span = max(len(names) * ROW, *(len(kernels) * KERNEL_ROW for kernels in sides))
    node_y = {name: (row + 0.5) * span / len(names) for row, name in enumerate(names)}

    figure, axes = style.subplots(1.2 + _INCHES_PER_ROW * span)
    for side, kernels in enumerate(sides):
        _column(axes, compared, side, kernels, node_y, span)
    partial = {*compared.only_before, *compared.only_after}
    levels = zip(*(name.split("/")[:-1] for name in names), strict=False)
    scope = "/".join(level[0] for level in takewhile(lambda level: len(set(level)) == 1, levels))
    for name, y in node_y.items():
        _node_box(axes, name.removeprefix(f"{scope}/") if scope else name, y, dotted=name in partial)
    _captions(axes, compared, f"{len(names)} nodes\nin {scope}" if scope else f"{len(names)} ONNX nodes", nodes is not None)
    axes.set(xlim=(_SIDES[0][0] - 0.05, _SIDES[1][1] + 0.05), ylim=(span + 0.2, -1.4))
    axes.set_axis_off()
    _legend(axes, [kernel for kernels in sides for kernel in kernels])
    axes.set_title(compared.headline)
    return figure


def _merged_order(before: LayerTable, after: LayerTable) -> list[str]:
    """The nodes of both graphs: those of the first in its order, and those of only the second after the nodes that they follow there."""
    first = nodes_of(before)
    behind: dict[str, list[str]] = defaultdict(list)
    previous, known = "", set(first)
    for node in nodes_of(after):
        if node in known:
            previous = node
        else:
            behind[previous].append(node)
    return [*behind[""], *(name for node in first for name in (node, *behind[node]))]


def _column(
    axes: style.Axes, compared: TableDiff, side: int, kernels: Sequence[Layer], node_y: dict[str, float], span: float
) -> None:
    rows = stacked(kernels, node_y, span)
    edge, node_edge = (_SIDES[0][1], _NODE[0]) if side == 0 else (_SIDES[1][0], _NODE[1])
    kept = {id(kernel) for change in compared.of("kept") for kernel in (change.before, change.after)[side]}
    for kernel, y in zip(kernels, rows, strict=True):
        hue = _hue(kernel)
        _kernel_box(axes, compared, _SIDES[side], kernel, y)
        held = sorted({node for node in kernel.onnx_nodes if node in node_y}, key=node_y.__getitem__)
        for node, (slice_y, height) in zip(held, slices(y, len(held)), strict=True):
            alpha = _FAINT if id(kernel) in kept else _STRONG
            band(axes, (node_edge, node_y[node], 0.8 * ROW), (edge, slice_y, height), hue, alpha)


def _dtype(kernel: Layer) -> str:
    """The type that a kernel reads, or the type of its weights if the compiler does not report it."""
    has = traits([kernel])
    return has["reads"] or has["weights"]


def _hue(kernel: Layer) -> str:
    return next((hue for dtype, hue in _HUES.items() if dtype in _dtype(kernel).split(" + ")), _OTHER)


def _kernel_box(axes: style.Axes, compared: TableDiff, edges: tuple[float, float], kernel: Layer, y: float) -> None:
    box(axes, edges, y, 0.9 * KERNEL_ROW, _hue(kernel), line="-" if kernel.onnx_nodes else "--")
    operators = compared.operators(kernel.onnx_nodes)
    types = f"{_dtype(kernel) or '?'} → {joined({t.dtype for t in kernel.outputs}) or '?'}"
    weight = "bold" if operators else "normal"
    lines = textwrap.wrap(short(operators.replace("Normalization", "Norm"), 30), 18) or ["no ONNX node"]
    axes.text(edges[0] + 0.1, y - 0.28, lines[0], fontsize=8, weight=weight, va="center")
    below, weight = (lines[1], weight) if lines[1:] else (types, "normal")
    axes.text(edges[0] + 0.1, y + 0.3, below, fontsize=8, va="center", weight=weight)


def _node_box(axes: style.Axes, name: str, y: float, *, dotted: bool) -> None:
    box(axes, _NODE, y, 0.8 * ROW, None, line=":" if dotted else "-")
    axes.text(
        sum(_NODE) / 2,
        y,
        short(name.replace("Normalization", "Norm"), 14),
        fontsize=8,
        va="center",
        ha="center",
        color="#333333",
    )


def _captions(axes: style.Axes, compared: TableDiff, nodes: str, windowed: bool) -> None:
    part = "part of" if windowed else ""
    texts = {
        _SIDES[0][0]: f"before: {part}\n{len(compared.before.kernels)} kernels",
        _NODE[0]: nodes,
        _SIDES[1][0]: f"after: {part}\n{len(compared.after.kernels)} kernels",
    }
    for x, text in texts.items():
        axes.text(x, -0.1, text, va="bottom", fontsize=8, color=GRAY)


def _legend(axes: style.Axes, kernels: Sequence[Layer]) -> None:
    from matplotlib.patches import Patch

    hues = [_hue(kernel) for kernel in kernels]
    names = {hue: dtype for dtype, hue in reversed(_HUES.items())} | {_OTHER: "other"}
    handles = [Patch(facecolor=hue, label=names[hue]) for hue in [*dict.fromkeys(_HUES.values()), _OTHER] if hue in hues]
    handles.append(Patch(facecolor=GRAY, alpha=_STRONG, label="kernels merged, split, added or gone"))
    handles.append(Patch(facecolor=GRAY, alpha=_FAINT, label="one kernel before, one after"))
    style.name_colors(axes, handles)
