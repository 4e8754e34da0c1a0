"""A layer table as a picture: ONNX nodes on the left, kernels on the right, and a band from each node to its kernel."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from course_lib import style
from course_lib.profiling.layer_tables.before_after import draw_before_after
from course_lib.profiling.layer_tables.boxes import GRAY, KERNEL_ROW, ROW, band, box, chosen, nodes_of, short, slices, stacked

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from course_lib.engines import Layer, LayerTable

_NODE, _KERNEL = (0.0, 4.4), (5.1, 10.0)  # left and right edges of the two columns
_INCHES_PER_ROW = 0.26
_HUES = len(style.COLORS) - 1  # all but black, which is the color of the text


def draw(
    table: LayerTable | None = None,
    *,
    before: LayerTable | None = None,
    after: LayerTable | None = None,
    nodes: str | Collection[str] | None = None,
) -> Figure:
    """One plan, or two side by side.

    ``draw(table)``: the ONNX nodes in order, the kernels in order of execution, and which node ended in which kernel. All nodes of one
    kernel have its color. Steps on the host are left out. A kernel with a dashed border has no ONNX node: the compiler added it. A
    node with a dashed border has no kernel: the compiler removed it or moved it to build time.

    ``draw(before=..., after=...)``: see `draw_before_after`.

    Args:
        table: one layer table.
        before, after: two tables to compare.
        nodes: draw only the nodes whose names start with this text, such as ``"/blocks/0"``, or only those of a collection; and the
            kernels that hold one of them.

    Raises:
        ValueError: a table has no kernels, as with a backend that does not report them; or no node is left to draw.
    """
    if table is None and before is not None and after is not None:
        return draw_before_after(before, after, nodes)
    if table is None or before is not None or after is not None:
        raise ValueError("draw(table) draws one plan, draw(before=..., after=...) compares two")
    return _draw_one(table, nodes)


def _draw_one(table: LayerTable, wanted: str | Collection[str] | None) -> Figure:
    if not table.kernels:
        raise ValueError(
            "this plan has no layer table to draw: build it with tensorrt or tensorrt_rtx, or use profile_onnxruntime"
        )
    nodes = chosen(nodes_of(table), wanted)
    depth = {name: row for row, name in enumerate(nodes)}
    kernels = [kernel for kernel in table.kernels if wanted is None or not depth.keys().isdisjoint(kernel.onnx_nodes)]
    span = max(len(nodes) * ROW, len(kernels) * KERNEL_ROW)
    node_y = {name: (row + 0.5) * span / max(len(nodes), 1) for name, row in depth.items()}
    kernel_y = stacked(kernels, node_y, span)
    hues = _hues(kernels)

    figure = style.figure(0.9 + _INCHES_PER_ROW * span, width=style.NARROW)
    axes = figure.add_subplot()
    for index, kernel in enumerate(kernels):
        _kernel_box(axes, kernel, kernel_y[index], table.fused_operators(kernel), hues.get(index))
        fused = sorted(set(kernel.onnx_nodes) & depth.keys(), key=depth.__getitem__)
        for node, (y, height) in zip(fused, slices(kernel_y[index], len(fused)), strict=True):
            band(axes, (_NODE[1], node_y[node], 0.8 * ROW), (_KERNEL[0], y, height), hues[index])
    for name, y in node_y.items():
        home = next((index for index, kernel in enumerate(kernels) if name in kernel.onnx_nodes), None)
        _node_box(axes, table.operators.get(name, ""), name, y, None if home is None else hues[home])

    added = " (dashed: added)" if any(not kernel.onnx_nodes for kernel in kernels) else ""
    axes.text(_NODE[0], -0.35, "ONNX nodes, in order", color=GRAY)
    axes.text(_KERNEL[0], -0.35, f"kernels{added}", color=GRAY)
    axes.set(xlim=(_NODE[0] - 0.05, _KERNEL[1] + 0.05), ylim=(span + 0.2, -1.0))
    axes.set_axis_off()
    axes.set_title(f"{len(nodes)} ONNX nodes became {len(kernels)} kernels")
    return figure


def _hues(kernels: Sequence[Layer]) -> dict[int, str]:
    """A color for each kernel that has nodes, by its index. Kernels of the same nodes, one for each profile, share theirs."""
    contents = {index: frozenset(kernel.onnx_nodes) for index, kernel in enumerate(kernels) if kernel.onnx_nodes}
    place = {content: number for number, content in enumerate(dict.fromkeys(contents.values()))}
    return {index: style.color(place[content] % _HUES) for index, content in contents.items()}


def _node_box(axes: Axes, operator: str, name: str, y: float, hue: str | None) -> None:
    box(axes, _NODE, y, 0.8 * ROW, hue)
    axes.text(_NODE[0] + 0.12, y, operator, weight="bold", va="center")
    name = name.removesuffix(f"/{operator}") or name
    room = 22 - 3 * len(operator) // 2  # letters after the bold ones
    if len(name) <= room or room > 8:  # a few letters of a name tell nothing
        axes.text(_NODE[1] - 0.12, y, short(name, room), fontsize=9, va="center", ha="right", color="#333333")


def _kernel_box(axes: Axes, kernel: Layer, y: float, operators: str, hue: str | None) -> None:
    box(axes, _KERNEL, y, 0.9 * KERNEL_ROW, hue)
    left, weight = _KERNEL[0] + 0.12, "bold" if operators else "normal"
    axes.text(left, y - 0.24, short(operators, 22) or "no ONNX node", weight=weight, va="center")
    axes.text(left, y + 0.3, short(kernel.short_name, 25), va="center", color="#333333")
