"""What the pages of grading share: templates for self-contained HTML, figures that follow the page's theme, tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from io import StringIO
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from course_lib._util.html import render, with_entries

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.figure import Figure

FIGURE_WIDTH = 3.7  # inches: a phone shows it as it is, and two are side by side on a wide screen
BLUE, GRAY = "#2E8BC9", "#8C8C8C"  # legible on white and on the dark page
_NUMBER = re.compile(r"[-\d.,]*x?( [kKMG]?B| \[[-\d.]+\])?")  # also a size, and a ratio with its interval
_BLACK = re.compile(r"(fill|stroke): #000000")


def page(title: str, template: str, **values: Any) -> str:
    """A whole page around a template of this package; it loads nothing from anywhere."""
    return _render("page.html", title=title, content=template, tag="main", **values)


def block(template: str, **values: Any) -> str:
    """A template of this package with the style that it needs, as part of another page."""
    return _render("block.html", content=template, tag="div", **values)


def part(template: str, **values: Any) -> str:
    """A template of this package as it is in a page, without style."""
    return _render(template, **values).strip()


@dataclass(frozen=True)
class Cell:
    """A cell of a table that stands out: `tone` is its class in the style sheet, "" for none."""

    text: str
    tone: str = ""

    def __str__(self) -> str:
        return self.text


def link(text: str, path: str) -> Markup:
    """A text that leads to a path relative to this page, not yet quoted."""
    from markupsafe import Markup

    return Markup('<a href="{}">{}</a>').format(quote(path), text)


def figure(drawn: Figure, alt: str) -> Markup:
    """A matplotlib figure as inline SVG, its black in the page's ink.

    Args:
        alt: says in plain text what the figure shows, numbers included.
    """
    import matplotlib
    from markupsafe import Markup

    drawn.patch.set_alpha(0)
    for axes in drawn.axes:
        axes.patch.set_alpha(0)
    text = StringIO()
    with matplotlib.rc_context({"svg.hashsalt": alt}):
        drawn.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    svg = text.getvalue()
    svg = _BLACK.sub(r"\1: currentColor", svg[svg.index("<svg") :]).replace(
        "<svg", f'<svg role="img" aria-label="{escape(alt)}"', 1
    )
    return Markup(f"<figure>{svg}</figure>")


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, caption: str = "") -> Markup:
    """A table of texts, numbers and `Cell`; "" for no rows.

    Everything is escaped, and what is between backticks is code. Numbers are at the right, and empty columns are left out.
    """
    from markupsafe import Markup

    columns, cells = with_entries(
        columns, [[cell if isinstance(cell, Cell) else Cell(_text(cell)) for cell in row] for row in rows]
    )
    numbers = [all(_NUMBER.fullmatch(cell.text) for cell in column) for column in zip(*cells, strict=True)]
    return Markup(_render("table.html", columns=columns, rows=cells, numbers=numbers, caption=caption))


def _text(value: object) -> str:
    return value if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else str(value)


def _render(template: str, **values: Any) -> str:
    return render("grading/reports", template, **values)
