"""The kernels of an engine as a page of their own: the drawing with the bytes that each one moves, and below it every column."""

from __future__ import annotations

from course_lib.cli import console
from course_lib.engines import LayerTable
from course_lib.grading.reports import pages
from course_lib.style import breakable_html
from course_lib.teaching.widgets import LayerViewer

_TYPES = ("reads", "weights", "writes")
_COLUMNS = ("operators", *_TYPES, "shape", "format", "onnx")
_HEADINGS = {"operators": "ONNX operators", "shape": "output shape", "onnx": "ONNX nodes"}


def layers_page(table: LayerTable, title: str) -> str:
    """The page, which looks like the reports. The title says what was built, and for which device.

    Raises:
        ValueError: the table does not have kernels.
    """
    from markupsafe import Markup

    found = table.rows()
    one_type = len({row["types"] for row in found}) == 1  # the caption has it
    columns = [column for column in _COLUMNS if not (one_type and column in _TYPES)]
    rows = [
        [breakable_html(row["kernel"]), console.size(kernel.bytes), *(row[column] for column in columns)]
        for kernel, row in zip(table.kernels, found, strict=True)
    ]
    return pages.page(
        "Layers of the engine",
        "layers.html",
        layers=table,
        subtitle=title,
        drawing=Markup(LayerViewer(table).html()),
        table=pages.table(("kernel", "memory traffic", *(_HEADINGS.get(column, column) for column in columns)), rows),
    )
