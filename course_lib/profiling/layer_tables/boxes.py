"""Parts of drawings of layer tables: boxes, bands between them, and their positions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from course_lib.engines import Layer, LayerTable

ROW, KERNEL_ROW = 1.0, 1.35  # heights of a node and of a kernel, which has two lines of text
GRAY = "#777777"
_NARROWEST = 2.0  # points of a letter at 9 points, and less
Edges = tuple[float, float]


def nodes_of(table: LayerTable) -> list[str]:
    """Every ONNX node once: in graph order, then those that only the kernels have."""
    return list(dict.fromkeys([*table.operators, *(node for kernel in table.kernels for node in kernel.onnx_nodes)]))


def chosen(nodes: Sequence[str], wanted: str | Collection[str] | None) -> list[str]:
    """The nodes to draw: all, those whose names start with a text, or those of a collection.

    Raises:
        ValueError: none is left.
    """
    found = [
        node for node in nodes if wanted is None or (node.startswith(wanted) if isinstance(wanted, str) else node in wanted)
    ]
    if not found and nodes:
        asked = f"starts with {wanted!r}" if isinstance(wanted, str) else "is in `nodes`"
        raise ValueError(f"no ONNX node {asked}: the names are like {', '.join(map(repr, nodes[:3]))}")
    return found


def stacked(kernels: Sequence[Layer], node_y: Mapping[str, float], span: float) -> list[float]:
    """Position of each kernel: level with its nodes as far as the order of execution and the space allow."""
    rows: list[float] = []
    for kernel in kernels:
        beside = [node_y[node] for node in kernel.onnx_nodes if node in node_y]
        earliest = rows[-1] + KERNEL_ROW if rows else KERNEL_ROW / 2
        rows.append(max(earliest, sum(beside) / len(beside)) if beside else earliest)
    if rows:
        rows[-1] = min(rows[-1], span - KERNEL_ROW / 2)
    for index in range(len(rows) - 2, -1, -1):  # what was pushed off the end pushes back
        rows[index] = min(rows[index], rows[index + 1] - KERNEL_ROW)
    assert all(below - above > KERNEL_ROW - 1e-6 for above, below in pairwise(rows))
    return rows


def slices(y: float, count: int) -> list[tuple[float, float]]:
    """Middle and height of each of the equal parts of a kernel's edge, from top to bottom."""
    height = 0.9 * KERNEL_ROW / max(count, 1)
    return [(y + height * (place + 0.5 - count / 2), height) for place in range(count)]


def box(axes: Axes, edges: Edges, y: float, height: float, hue: str | None, *, line: str = "") -> None:
    """A tinted box with a border of the same color; dashed and empty if there is none."""
    from matplotlib.colors import to_rgba
    from matplotlib.patches import Rectangle

    left, right = edges
    face = to_rgba(hue, 0.22) if hue else "white"
    border = line or ("-" if hue else "--")
    axes.add_patch(
        Rectangle((left, y - height / 2), right - left, height, lw=0.9, facecolor=face, edgecolor=hue or GRAY, linestyle=border)
    )


def band(axes: Axes, start: tuple[float, float, float], end: tuple[float, float, float], hue: str, alpha: float = 0.35) -> None:
    """Draw a band between two edges, each given as x, middle and height."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    (left, y0, height0), (right, y1, height1) = start, end
    middle, half0, half1 = (left + right) / 2, height0 / 2, height1 / 2
    corners = [
        (left, y0 - half0), (middle, y0 - half0), (middle, y1 - half1), (right, y1 - half1),
        (right, y1 + half1), (middle, y1 + half1), (middle, y0 + half0), (left, y0 + half0), (left, y0 - half0),
    ]  # fmt: skip
    codes = [Path.MOVETO, *[Path.CURVE4] * 3, Path.LINETO, *[Path.CURVE4] * 3, Path.CLOSEPOLY]
    axes.add_patch(PathPatch(Path(corners, codes), facecolor=hue, alpha=alpha, linewidth=0))


def short(text: str, longest: int) -> str:
    """The text, or its beginning and end with an ellipsis between."""
    if len(text) <= longest:
        return text
    tail = longest // 2 - 1
    return f"{text[: longest - tail - 1]}…{text[-tail:]}"


def width(text: str, weight: str = "normal") -> float:
    """Points that the text takes at 9 points."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    return float(text_to_path.get_text_width_height_descent(text, FontProperties(size=9, weight=weight), ismath=False)[0])


def fitted(text: str, points: float, weight: str = "normal") -> str:
    """The longest of the short forms of a text that fits into a width."""
    longest = min(len(text), int(points / _NARROWEST))  # measuring a letter less each time takes long for a text of thousands
    return next((cut for most in range(longest, 0, -1) if width(cut := short(text, most), weight) <= points), "")
