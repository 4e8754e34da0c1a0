"""The layer table of an engine as a drawing to explore, and what another build changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from course_lib.engines import LayerTable
from course_lib.engines.layers import dtype_name
from course_lib.profiling import TableDiff, diff
from course_lib.profiling.layer_tables.boxes import nodes_of
from course_lib.profiling.layer_tables.dtypes import joined
from course_lib.teaching.widgets.view import View


class LayerViewer(View):
    """The kernels of a build in order of execution, the ONNX nodes fused into each one, its types, and the bytes it moves.

    Args:
        table: the layers of a plan.
        other: the layers of another build of the same network, to show the changes from ``table`` to ``other``.

    Raises:
        ValueError: a table without kernels.
    """

    def __init__(self, table: LayerTable, other: LayerTable | None = None) -> None:
        tables = [table] if other is None else [table, other]
        if not all(one.kernels for one in tables):
            raise ValueError("a table has no kernels to show: build with tensorrt or tensorrt_rtx, or use profile_onnxruntime")
        found = None if other is None else diff(table, other)
        data = {
            "builds": [_build(label, one) for label, one in zip(_labels(tables), tables, strict=False)],
            "changes": _changes(found) if found else [],
            "headline": found.headline if found else "",
        }
        super().__init__("layers", data, {"build": 0, "dtype": "all", "search": "", "collapsed": False, "kernel": -1})


def _labels(tables: Sequence[LayerTable]) -> list[str]:
    """Before and after, with the type of most kernels if the builds differ in it."""
    types = [dtype_name(next(iter(dict(table.dtype_counts().most_common(1))), "")) for table in tables]
    several = len(set(types)) > 1
    return [f"{label} ({type_})" if several else label for label, type_ in zip(("before", "after"), types, strict=False)]


def _build(label: str, table: LayerTable) -> dict[str, Any]:
    nodes = nodes_of(table)
    place = {name: at for at, name in enumerate(nodes)}
    kernels = [
        {
            "name": row["kernel"],
            "whole_name": kernel.name,
            "kind": row["kind"],
            "words": ", ".join(f"{word} = {meaning}" for word, meaning in kernel.name_words.items()),
            "fused": row["operators"],
            "nodes": sorted(place[node] for node in set(kernel.onnx_nodes)),
            "type": joined(kernel.dtypes),
            "dtypes": sorted(map(dtype_name, kernel.dtypes)),
            "bytes": kernel.bytes,
            **{name: row[name] for name in ("reads", "weights", "writes", "shape", "format")},
        }
        for kernel, row in zip(table.kernels, table.rows(), strict=True)
    ]
    return {
        "label": label,
        "nodes": [[name, table.operators.get(name, "")] for name in nodes],
        "kernels": kernels,
        "dtypes": {dtype_name(dtype): count for dtype, count in table.dtype_counts().most_common()},
        "dynamic": any("N" in row["shape"] for row in table.rows()),
    }


def _changes(found: TableDiff) -> list[dict[str, object]]:
    """The changes, with the places of their kernels in the two builds."""
    places = [{id(kernel): at for at, kernel in enumerate(table.kernels)} for table in (found.before, found.after)]
    return [
        {
            "kind": change.kind,
            "kernels": [
                [places[side][id(kernel)] for kernel in kernels] for side, kernels in enumerate((change.before, change.after))
            ],
            "differs": {what: list(both) for what, both in change.differs.items()},
        }
        for change in found.changes
        if not change.unchanged
    ]
