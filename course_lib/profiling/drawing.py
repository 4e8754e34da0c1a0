"""A layer table as a picture: ONNX nodes on the left, kernels on the right, a band from each node to where it went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from course_lib import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from course_lib.engines import Layer, LayerTable

_NODE, _KERNEL = (0.0, 4.1), (5.3, 10.0)  # left and right edges of the two columns
_ROW, _KERNEL_ROW = 1.0, 1.35  # heights in rows; a kernel has two lines of text
_INCHES_PER_ROW = 0.25
_GREY = "#777777"
_HUES = len(style.COLOURS) - 1  # all but black, which is the colour of the text


def draw(table: LayerTable) -> Figure:
    """The ONNX nodes of a plan in order, the kernels in order of execution, and which node ended in which kernel.

    All nodes of one kernel have its colour. Steps on the host are left out. A kernel with a dashed border has no ONNX node: the
    compiler added it. A node with a dashed border has no kernel: the compiler removed it or moved it to build time.

    Raises:
        ValueError: the table has no kernels, as with a backend that does not tell them.
    """
    kernels = table.kernels
    if not kernels:
        raise ValueError("this plan has no layer table to draw: build it with tensorrt or tensorrt_rtx")
    nodes = _nodes(table, kernels)
    depth = {name: row for row, name in enumerate(nodes)}
    span = max(len(nodes) * _ROW, len(kernels) * _KERNEL_ROW)
    node_y = {name: (row + 0.5) * span / max(len(nodes), 1) for name, row in depth.items()}
    kernel_y = _kernel_rows(kernels, node_y, span)
    hues = _hues(kernels)

    figure = style.figure(9.0, 0.9 + _INCHES_PER_ROW * span)
    axes = figure.add_subplot()
    for index, kernel in enumerate(kernels):
        swallowed = sorted(set(kernel.onnx_nodes), key=depth.__getitem__)
        _kernel_box(axes, kernel, kernel_y[index], [table.operators.get(node, node) for node in swallowed], hues.get(index))
        for place, node in enumerate(swallowed):
            slice_y = kernel_y[index] + 0.9 * _KERNEL_ROW * ((place + 0.5) / len(swallowed) - 0.5)
            _band(axes, node_y[node], slice_y, 0.9 * _KERNEL_ROW / len(swallowed), hues[index])
    for name, y in node_y.items():
        home = next((index for index, kernel in enumerate(kernels) if name in kernel.onnx_nodes), None)
        _node_box(axes, table.operators.get(name, ""), name, y, None if home is None else hues[home])

    added = " (dashed: added by the compiler)" if any(not kernel.onnx_nodes for kernel in kernels) else ""
    axes.text(_NODE[0], -0.35, "ONNX nodes, in the graph's order", fontsize=8, color=_GREY)
    axes.text(_KERNEL[0], -0.35, f"kernels, in order of execution{added}", fontsize=8, color=_GREY)
    axes.set(xlim=(_NODE[0] - 0.05, _KERNEL[1] + 0.05), ylim=(span + 0.2, -1.0))
    axes.set_axis_off()
    axes.set_title(f"{len(nodes)} ONNX nodes became {len(kernels)} kernels")
    return figure


def _nodes(table: LayerTable, kernels: Sequence[Layer]) -> list[str]:
    """Every node once: in the graph's order, then those that only the kernels know."""
    return list(dict.fromkeys([*table.operators, *(node for kernel in kernels for node in kernel.onnx_nodes)]))


def _hues(kernels: Sequence[Layer]) -> dict[int, str]:
    """A colour for each kernel that has nodes, by its index. Kernels of the same nodes, one a profile, share theirs."""
    contents = {index: frozenset(kernel.onnx_nodes) for index, kernel in enumerate(kernels) if kernel.onnx_nodes}
    place = {content: number for number, content in enumerate(dict.fromkeys(contents.values()))}
    return {index: style.colour(place[content] % _HUES) for index, content in contents.items()}


def _kernel_rows(kernels: Sequence[Layer], node_y: Mapping[str, float], span: float) -> list[float]:
    """Where each kernel stands: beside its nodes as far as the order of execution and the room allow."""
    rows: list[float] = []
    for kernel in kernels:
        beside = [node_y[node] for node in kernel.onnx_nodes]
        earliest = rows[-1] + _KERNEL_ROW if rows else _KERNEL_ROW / 2
        rows.append(max(earliest, sum(beside) / len(beside)) if beside else earliest)
    rows[-1] = min(rows[-1], span - _KERNEL_ROW / 2)
    for index in range(len(rows) - 2, -1, -1):  # what was pushed off the end pushes back
        rows[index] = min(rows[index], rows[index + 1] - _KERNEL_ROW)
    assert all(below - above > _KERNEL_ROW - 1e-6 for above, below in pairwise(rows))
    return rows


def _node_box(axes: Axes, operator: str, name: str, y: float, hue: str | None) -> None:
    _box(axes, _NODE, y, 0.8 * _ROW, hue)
    axes.text(_NODE[0] + 0.12, y, operator, fontsize=8, weight="bold", va="center")
    axes.text(_NODE[1] - 0.12, y, _short(name, 34), fontsize=7, va="center", ha="right", color="#333333")


def _kernel_box(axes: Axes, kernel: Layer, y: float, operators: Sequence[str], hue: str | None) -> None:
    _box(axes, _KERNEL, y, 0.9 * _KERNEL_ROW, hue)
    left, weight = _KERNEL[0] + 0.12, "bold" if operators else "normal"
    axes.text(left, y - 0.24, _short(" + ".join(operators), 52) or "no ONNX node", fontsize=8, weight=weight, va="center")
    axes.text(left, y + 0.3, _short(f"{kernel.name}  ({kernel.kind})", 62), fontsize=6.5, va="center", color="#333333")


def _box(axes: Axes, edges: tuple[float, float], y: float, height: float, hue: str | None) -> None:
    """A tinted box with a border of the kernel's colour; dashed and empty where there is none."""
    from matplotlib.colors import to_rgba
    from matplotlib.patches import Rectangle

    left, right = edges
    face, line = (to_rgba(hue, 0.22), "-") if hue else ("white", "--")
    box = Rectangle(
        (left, y - height / 2), right - left, height, lw=0.9, facecolor=face, edgecolor=hue or _GREY, linestyle=line
    )
    axes.add_patch(box)


def _band(axes: Axes, start: float, end: float, end_height: float, hue: str) -> None:
    """From the right edge of a node to its slice of the left edge of its kernel."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    left, right, half = _NODE[1], _KERNEL[0], 0.4 * _ROW
    middle, end_half = (left + right) / 2, end_height / 2
    corners = [
        (left, start - half), (middle, start - half), (middle, end - end_half), (right, end - end_half),
        (right, end + end_half), (middle, end + end_half), (middle, start + half), (left, start + half), (left, start - half),
    ]  # fmt: skip
    codes = [Path.MOVETO, *[Path.CURVE4] * 3, Path.LINETO, *[Path.CURVE4] * 3, Path.CLOSEPOLY]
    axes.add_patch(PathPatch(Path(corners, codes), facecolor=hue, alpha=0.35, linewidth=0))


def _short(text: str, longest: int) -> str:
    """The text, or its beginning and end with an ellipsis between."""
    if len(text) <= longest:
        return text
    tail = longest // 2 - 1
    return f"{text[: longest - tail - 1]}…{text[-tail:]}"
