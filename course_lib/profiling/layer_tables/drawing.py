"""A layer table as a picture: ONNX nodes on the left, kernels on the right, and a band from each node to its kernel."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from course_lib import style
from course_lib.profiling.layer_tables import boxes
from course_lib.profiling.layer_tables.before_after import draw_before_after

if TYPE_CHECKING:
    from course_lib.engines import Layer, LayerTable

_NODE, _KERNEL = (0.0, 4.4), (5.1, 10.0)  # left and right edges of the two columns
_NODE_POINTS, _KERNEL_POINTS = 114, 130  # of the text in them
_INCHES_PER_ROW = 0.26
_HUES = {"one node": style.COLORS[0], "fused": style.COLORS[1]}


def draw(
    table: LayerTable | None = None,
    *,
    before: LayerTable | None = None,
    after: LayerTable | None = None,
    nodes: str | Collection[str] | None = None,
) -> style.Figure:
    """One plan, or two side by side.

    ``draw(table)``: the ONNX nodes in order, the kernels in order of execution, and which node ended in which kernel. Kernels of
    several nodes have one color, and those of one node another. Steps on the host are left out. A kernel with a dashed border has no
    ONNX node: the compiler added it. A node with a dashed border has no kernel: the compiler removed it or moved it to build time.

    ``draw(before=..., after=...)``: see `draw_before_after`.

    Args:
        table: one layer table.
        before, after: two tables to compare.
        nodes: draw only the nodes whose names start with this text, such as ``"/blocks/0"``, or only those of a collection; and the
            kernels that hold one of them, with the kernels that the compiler added before those. The title counts all.

    Raises:
        ValueError: a table has no kernels, as with a backend that does not report them; or no node is left to draw.
    """
    from matplotlib.colors import to_rgba
    from matplotlib.patches import Patch

    if table is None and before is not None and after is not None:
        return draw_before_after(before, after, nodes)
    if table is None or before is not None or after is not None:
        raise ValueError("draw(table) draws one plan, draw(before=..., after=...) compares two")
    if not table.kernels:
        raise ValueError(
            "this plan has no layer table to draw: build it with tensorrt or tensorrt_rtx, or use profile_onnxruntime"
        )
    every = boxes.nodes_of(table)
    shown = boxes.chosen(every, nodes)
    depth = {name: row for row, name in enumerate(shown)}
    holds = [not depth.keys().isdisjoint(kernel.onnx_nodes) for kernel in table.kernels]
    kernels = [
        kernel
        for kernel, drawn, next_drawn in zip(table.kernels, holds, [*holds[1:], False], strict=True)
        if nodes is None or drawn or (next_drawn and not kernel.onnx_nodes)
    ]
    span = max(len(shown) * boxes.ROW, len(kernels) * boxes.KERNEL_ROW)
    node_y = {name: (row + 0.5) * span / max(len(shown), 1) for name, row in depth.items()}
    kernel_y = boxes.stacked(kernels, node_y, span)

    figure, axes = style.subplots(1.2 + _INCHES_PER_ROW * span)
    hues: dict[str, str] = {}  # of nodes
    for kernel, middle in zip(kernels, kernel_y, strict=True):
        hue = _HUES["fused" if len(kernel.onnx_nodes) > 1 else "one node"]
        _kernel_box(axes, kernel, middle, table.fused_operators(kernel), hue if kernel.onnx_nodes else None)
        held = sorted(set(kernel.onnx_nodes) & depth.keys(), key=depth.__getitem__)
        for node, (y, height) in zip(held, boxes.slices(middle, len(held)), strict=True):
            hues.setdefault(node, hue)
            boxes.band(axes, (_NODE[1], node_y[node], 0.8 * boxes.ROW), (_KERNEL[0], y, height), hue)
    for name, y in node_y.items():
        _node_box(axes, table.operators.get(name, ""), name, y, hues.get(name))

    for (left, _), what, drawn, total in (
        (_NODE, "ONNX nodes, in order", len(shown), len(every)),
        (_KERNEL, "kernels", len(kernels), len(table.kernels)),
    ):
        axes.text(left, -0.35, what, color=boxes.GRAY)
        if drawn < total:
            axes.text(left, span + 0.5, f"and {total - drawn} more", va="center", color=boxes.GRAY)
    axes.set(xlim=(_NODE[0] - 0.05, _KERNEL[1] + 0.05), ylim=(span + (0.9 if nodes else 0.2), -1.0))
    axes.set_axis_off()
    handles = [Patch(facecolor=to_rgba(hue, 0.22), edgecolor=hue, label=name) for name, hue in _HUES.items()]
    if not all(kernel.onnx_nodes for kernel in kernels):
        handles.append(Patch(facecolor="white", edgecolor=boxes.GRAY, linestyle="--", label="added by the compiler"))
    style.name_colors(axes, handles)
    axes.set_title(f"{len(every)} ONNX nodes became {len(table.kernels)} kernels")
    return figure


def _node_box(axes: style.Axes, operator: str, name: str, y: float, hue: str | None) -> None:
    boxes.box(axes, _NODE, y, 0.8 * boxes.ROW, hue)
    axes.text(_NODE[0] + 0.12, y, operator, weight="bold", va="center")
    name = name.removesuffix(f"/{operator}") or name
    room = _NODE_POINTS - boxes.width(operator, "bold")
    if boxes.width(name) <= room or room > 60:  # a few letters of a name tell nothing
        axes.text(_NODE[1] - 0.12, y, boxes.fitted(name, room), fontsize=9, va="center", ha="right", color="#333333")


def _kernel_box(axes: style.Axes, kernel: Layer, y: float, operators: str, hue: str | None) -> None:
    boxes.box(axes, _KERNEL, y, 0.9 * boxes.KERNEL_ROW, hue)
    left, weight = _KERNEL[0] + 0.12, "bold" if operators else "normal"
    operators = operators.replace("DequantizeLinear", "DQ").replace("QuantizeLinear", "Q")
    name = kernel.short_name
    what = operators or ("new layout" if name.startswith(("Move", "Reformat")) else "no ONNX node")
    axes.text(left, y - 0.24, boxes.fitted(what, _KERNEL_POINTS, weight), weight=weight, va="center")
    axes.text(left, y + 0.3, boxes.fitted(name, _KERNEL_POINTS), va="center", color="#333333")
