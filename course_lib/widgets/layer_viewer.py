"""The layer table of an engine, with filters, and what another build changed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, Any

from course_lib import style
from course_lib.engines import Layer, LayerTable
from course_lib.profiling import diff
from course_lib.profiling.dtypes import joined
from course_lib.widgets.controls import choice, switch, text_field
from course_lib.widgets.shown import Shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
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
    """The kernels of a build, in order of execution: the ONNX nodes fused into each one, and the types it reads and writes.

    Args:
        table: the layers of a plan.
        other: of another build of the same network, to show what changed from ``table`` to ``other``.

    Raises:
        ValueError: a table without kernels.
    """

    def __init__(self, table: LayerTable, other: LayerTable | None = None) -> None:
        if not table.kernels or (other is not None and not other.kernels):
            raise ValueError("a table has no kernels to show: build with tensorrt or tensorrt_rtx, or use profile_onnxruntime")
        self._table, self._other = table, other
        self._diff = None if other is None else diff(table, other)
        dtypes = table.dtype_counts() + (other.dtype_counts() if other else Counter())
        controls: dict[str, Any] = {
            "dtype": choice("Computes with", [_ALL, *sorted(dtypes)], _ALL),
            "search": text_field("Name contains", "kernel, operator or ONNX node"),
        }
        super().__init__(controls | ({"changes": switch("Show the changes", True)} if self._diff else {}))

    def figure(self, dtype: str, search: str, changes: bool = False) -> Figure:
        """One bar per kernel: how many ONNX nodes are in it, colored by the type it computes with; gray where filtered out.

        With the changes, the other build is drawn below on the same scales.
        """
        builds = self._builds(changes)
        hues = {
            name: style.colour(at) for at, name in enumerate(sorted({_type(k) for t in builds.values() for k in t.kernels}))
        }
        figure = style.figure(9.0, 2.6 if self._other is None else 4.4)
        rows = figure.subplots(len(builds), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
        for axes, (build, table) in zip(rows, builds.items(), strict=True):
            _draw(axes, table, _chosen(table, dtype, search), hues, build)
        rows[-1].set(xlabel="kernel, in order of execution", xlim=(-0.6, max(len(t.kernels) for t in builds.values()) - 0.4))
        counts = ", ".join(
            f"{build}{len(table.kernels)} kernels hold {len({n for k in table.kernels for n in k.onnx_nodes})} ONNX nodes"
            for build, table in builds.items()
        )
        shown = " and ".join(str(len(_chosen(table, dtype, search))) for table in builds.values())
        figure.suptitle(f"{counts}; {shown} are shown", fontsize=10, weight="bold")
        return figure

    def text(self, dtype: str, search: str, changes: bool = False) -> str:
        """How many kernels of each build the filters leave, and in one line what the other build changed."""
        texts = []
        for build, table in self._builds(changes).items():
            counts = ", ".join(f"{n} with {name}" for name, n in table.dtype_counts().most_common())
            chosen = len(_chosen(table, dtype, search))
            texts.append(f"{build.capitalize()}{chosen} of {len(table.kernels)} kernels shown; of all: {counts}.")
        return " ".join(texts) + (f" To the other build: {self._diff.headline}." if self._diff else "")

    def html(self, **state: Any) -> str:
        """The line, and under it the filtered table or the changes; names are escaped."""
        shown = self._changes if state.get("changes") else self._shown_table
        body = shown(state["dtype"], state["search"])
        return f'{super().html(**state)}<div tabindex="0" role="region" aria-label="Layer table" style="{_CARD}">{body}</div>'

    def _builds(self, changes: bool) -> dict[str, LayerTable]:
        """What is shown, by what its labels begin with."""
        return {"before: ": self._table, "after: ": self._other} if changes and self._other else {"": self._table}

    def _changes(self, dtype: str, search: str) -> str:
        """The changes of which at least one kernel, before or after, passes the filters."""
        assert self._diff and self._other
        tables = (self._table, self._other)
        kept = {id(table.kernels[at]) for table in tables for at in _chosen(table, dtype, search)}
        changes = [c for c in self._diff.changes if any(id(kernel) in kept for kernel in (*c.before, *c.after))]
        return replace(self._diff, changes=tuple(changes))._repr_html_()

    def _shown_table(self, dtype: str, search: str) -> str:
        held = "operators" if self._table.operators else "onnx"
        columns = {"kernel": "Kernel", held: "ONNX nodes in it", **_COLUMNS}
        head = "".join(f'<th scope="col" {_CELL}>{title}</th>' for title in columns.values())
        rows = self._table.rows()
        body = "".join(
            f'<tr title="{escape(row["onnx"])}">'
            + "".join(f"<td {_CELL}>{escape(row[name])}</td>" for name in columns)
            + "</tr>"
            for row in (rows[at] for at in _chosen(self._table, dtype, search))
        )
        caption = "<caption>Kernels in order of execution; a row's tooltip names its ONNX nodes</caption>"
        return f'<table style="border-collapse:collapse">{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _type(kernel: Layer) -> str:
    return joined(kernel.dtypes) or "unknown"


def _chosen(table: LayerTable, dtype: str, search: str) -> list[int]:
    """Places of the kernels that pass both filters."""
    words = search.lower().split()

    def passes(kernel: Layer, row: dict[str, str]) -> bool:
        text = " ".join(row.values()).lower()
        return (dtype == _ALL or dtype in kernel.dtypes) and all(word in text for word in words)

    return [at for at, pair in enumerate(zip(table.kernels, table.rows(), strict=True)) if passes(*pair)]


def _draw(axes: Axes, table: LayerTable, chosen: list[int], hues: dict[str, str], build: str) -> None:
    heights = [max(len(kernel.onnx_nodes), 0.15) for kernel in table.kernels]
    for name in sorted({_type(kernel) for kernel in table.kernels}):
        places = [at for at in chosen if _type(table.kernels[at]) == name]
        label = f"computes with {name}: {len(places)}"
        axes.bar(places, [heights[at] for at in places], color=hues[name], width=0.8, label=label)
    others = sorted(set(range(len(heights))) - set(chosen))
    axes.bar(others, [heights[at] for at in others], color="#DDDDDD", width=0.8)
    axes.set(ylabel=f"{build}ONNX nodes" if build else "ONNX nodes in it")
    axes.legend(frameon=False, fontsize=8, ncols=len(hues), loc="lower left", bbox_to_anchor=(0, 1))
