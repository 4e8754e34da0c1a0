"""The layer table of an engine, with filters, and what another build changed."""

from __future__ import annotations

from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any

from course_lib import style
from course_lib.engines import Layer, LayerTable
from course_lib.profiling import diff
from course_lib.profiling.dtypes import joined
from course_lib.widgets.controls import choice, switch, text_field
from course_lib.widgets.shown import Shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ALL = "all"
_COLUMNS = {
    "kernel": "Kernel",
    "reads": "Reads",
    "weights": "Weights",
    "writes": "Writes",
    "shape": "Shape",
    "format": "Format",
}
_CELL = 'style="text-align:left;vertical-align:top;padding:2px 8px;border-bottom:1px solid #ddd;overflow-wrap:anywhere"'
# A white card like the figures: the tints of a diff would be unreadable under the light text of a dark theme.
_CARD = "background:#ffffff;color:#111111;height:320px;overflow:auto;padding:4px;font-size:12px;line-height:1.4"


class LayerViewer(Shown):
    """The kernels of a build, in order of execution: which ONNX nodes each one swallowed, and the types it reads and writes.

    Args:
        table: the layers of a plan.
        other: of another build of the same network, to show what changed from ``table`` to ``other``.

    Raises:
        ValueError: a table without kernels.
    """

    def __init__(self, table: LayerTable, other: LayerTable | None = None) -> None:
        if not table.kernels or (other is not None and not other.kernels):
            raise ValueError("a table has no kernels to show: build with tensorrt or tensorrt_rtx, or use profile_onnxruntime")
        self._table, self._rows = table, table.rows()
        self._diff = None if other is None else diff(table, other)
        controls: dict[str, Any] = {
            "dtype": choice("Computes with", [_ALL, *sorted(table.dtype_counts())], _ALL),
            "search": text_field("Name contains", "kernel, operator or ONNX node"),
        }
        super().__init__(controls | ({"changes": switch("Show the changes", True)} if self._diff else {}))

    def figure(self, dtype: str, search: str, changes: bool = False) -> Figure:
        """One bar a kernel: how many ONNX nodes are in it, coloured by the type it computes with; grey where filtered out."""
        chosen = self._chosen(dtype, search)
        types = sorted({joined(kernel.dtypes) or "not told" for kernel in self._table.kernels})
        figure = style.figure(9.0, 2.6)
        axes = figure.add_subplot()
        heights = [max(len(kernel.onnx_nodes), 0.15) for kernel in self._table.kernels]
        for index, name in enumerate(types):
            places = [at for at in chosen if (joined(self._table.kernels[at].dtypes) or "not told") == name]
            label = f"computes with {name}: {len(places)}"
            axes.bar(places, [heights[at] for at in places], color=style.colour(index), width=0.8, label=label)
        others = [at for at in range(len(heights)) if at not in chosen]
        axes.bar(others, [heights[at] for at in others], color="#DDDDDD", width=0.8)
        axes.set(xlabel="kernel, in order of execution", ylabel="ONNX nodes in it", xlim=(-0.6, len(heights) - 0.4))
        axes.legend(frameon=False, fontsize=8, ncols=len(types), loc="lower left", bbox_to_anchor=(0, 1))
        nodes = len({node for kernel in self._table.kernels for node in kernel.onnx_nodes})
        figure.suptitle(f"{len(heights)} kernels hold {nodes} ONNX nodes; {len(chosen)} are shown", fontsize=10, weight="bold")
        return figure

    def text(self, dtype: str, search: str, changes: bool = False) -> str:
        """How many kernels the filter leaves, and what the other build changed in one line."""
        counts = ", ".join(f"{n} with {name}" for name, n in self._table.dtype_counts().most_common())
        shown = f"{len(self._chosen(dtype, search))} of {len(self._rows)} kernels shown; of all: {counts}."
        return shown + (f" To the other build: {self._diff.headline}." if self._diff else "")

    def html(self, **state: Any) -> str:
        """The line, and under it the filtered table or the changes; names are escaped."""
        changes = self._diff is not None and state["changes"]
        body = self._changes if changes else self._shown_table(state["dtype"], state["search"])
        return f'{super().html(**state)}<div tabindex="0" role="region" aria-label="Layer table" style="{_CARD}">{body}</div>'

    @cached_property
    def _changes(self) -> str:
        return self._diff._repr_html_() if self._diff else ""

    def _chosen(self, dtype: str, search: str) -> list[int]:
        """Places of the kernels that pass both filters."""
        words = search.lower().split()

        def passes(kernel: Layer, row: dict[str, str]) -> bool:
            text = " ".join(row.values()).lower()
            return (dtype == _ALL or dtype in kernel.dtypes) and all(word in text for word in words)

        return [at for at, pair in enumerate(zip(self._table.kernels, self._rows, strict=True)) if passes(*pair)]

    def _shown_table(self, dtype: str, search: str) -> str:
        held = "operators" if self._table.operators else "onnx"
        columns = {"kernel": "Kernel", held: "ONNX nodes in it", **_COLUMNS}
        head = "".join(f'<th scope="col" {_CELL}>{title}</th>' for title in columns.values())
        rows = (self._rows[at] for at in self._chosen(dtype, search))
        body = "".join(
            f'<tr title="{escape(row["onnx"])}">'
            + "".join(f"<td {_CELL}>{escape(row[name])}</td>" for name in columns)
            + "</tr>"
            for row in rows
        )
        caption = "<caption>Kernels in order of execution; a row's tooltip names its ONNX nodes</caption>"
        return f'<table style="border-collapse:collapse">{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
