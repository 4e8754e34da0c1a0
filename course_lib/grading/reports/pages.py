"""What the pages of grading share: one self-contained HTML shell for light and dark, figures that follow the theme, tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from io import StringIO
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Every rule is bound to the wrapper: nbgrader's feedback shows the same blocks on its own page, which is always light.
_STYLE = """<style>
.course-report { --ink: #1b1b1b; --soft: #565656; --paper: #ffffff; --panel: #f5f5f3; --line: #d9d9d6;
  --full: #00795a; --partial: #9a6700; --none: #b84a00; color-scheme: light;
  font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); padding: 1.5em; }
@media (prefers-color-scheme: dark) { main.course-report { --ink: #e8e8e6; --soft: #b0b0ac; --paper: #17181a; --panel: #222427;
  --line: #3c3f44; --full: #3fc79a; --partial: #e8b13c; --none: #ff8a4c; color-scheme: dark; } }
.course-report h1 { font-size: 1.7em; line-height: 1.2; margin: 0 } .course-report h2 { font-size: 1.2em; margin: 2em 0 .5em }
.course-report a { color: inherit; text-decoration: underline }
.course-report .soft, .course-report footer { color: var(--soft) } .course-report footer { font-size: .85em; margin-top: 2em }
.course-report .total { font-size: 2.4em; font-weight: 700; line-height: 1.1; margin: .4em 0 }
.course-report .total span { font-size: .45em; font-weight: 400; color: var(--soft) }
.course-report .task { border-left: 5px solid var(--none); background: var(--panel); padding: .5em 1em; margin: .7em 0 }
.course-report .task.full { border-color: var(--full) }
.course-report .task.partial, .course-report .task.inconclusive { border-color: var(--partial) }
.course-report .task p { margin: .2em 0; overflow-wrap: anywhere } .course-report .hint { font-style: italic }
.course-report .note { border: 1px solid var(--partial); padding: .6em 1em }
.course-report figure { margin: .5em 0; overflow-x: auto } .course-report figure svg { max-width: 100%; height: auto; min-width: 24em }
.course-report .figures { display: flex; flex-wrap: wrap; gap: 0 1em; align-items: flex-start }
.course-report svg { fill: var(--ink) } .course-report .wide { overflow-x: auto }
.course-report table { border-collapse: collapse; table-layout: auto; font-size: .9em; color: inherit }
.course-report td, .course-report th { padding: .25em .8em .25em 0; text-align: left; vertical-align: top; border: 0;
  border-bottom: 1px solid var(--line); background: none; color: inherit }
.course-report .short { white-space: nowrap } .course-report tr { background: none }
.course-report td.number, .course-report th.number { text-align: right }
.course-report caption { text-align: left; color: var(--soft); padding: .3em 0; caption-side: top }
.course-report pre { background: var(--panel); color: inherit; padding: .7em 1em; overflow-x: auto; border: 0 }
/* nbgrader's page takes the triangles away, and gives all columns of a table one width, whatever is in them */
details > summary { display: list-item; cursor: pointer }
.rendered_html table, .jp-RenderedHTMLCommon table { table-layout: auto }
.course-report code { background: none; color: inherit; padding: 0 } .course-report li { margin: .2em 0 }
</style>"""

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>{title}</title>
<style>body {{ margin: 0 auto; max-width: 64rem; background: #fff }}
@media (prefers-color-scheme: dark) {{ body {{ background: #17181a }} }}</style></head><body>{body}</body></html>
"""

_SHORT = 20  # characters of a cell that stay on one line
_BLACK = re.compile(r"(fill|stroke): #000000")


def page(title: str, body: str) -> str:
    """A whole page around a `block`; it loads nothing from anywhere. `title` is plain text."""
    return _PAGE.format(title=escape(title), body=body)


def block(parts: Iterable[str], *, tag: str = "div") -> str:
    """HTML with the style that it needs, for its own page or as part of another."""
    return f'{_STYLE}<{tag} class="course-report">{"".join(parts)}</{tag}>'


@dataclass(frozen=True)
class Link:
    """A cell of a table that leads to another page; `address` is a path relative to this one, not yet quoted."""

    text: str
    address: str

    def __str__(self) -> str:
        return self.text


def figure(drawn: Figure, alt: str, names: Mapping[str, str] | None = None) -> str:
    """A matplotlib figure as inline SVG, its black in the page's ink.

    Args:
        drawn: the figure.
        alt: says in plain text what the figure shows, numbers included.
        names: what a browser says when it is pointed at a part, by the part's ``gid``.
    """
    import matplotlib

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
    for part, name in (names or {}).items():
        svg = svg.replace(f'<g id="{part}">', f'<g id="{part}"><title>{escape(name)}</title>', 1)
    return f"<figure>{svg}</figure>"


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, caption: str = "") -> str:
    """A table of plain texts and numbers; every cell is escaped, numbers stand to the right. "" for no rows."""
    rows = list(rows)
    if not rows:
        return ""
    right = [all(isinstance(row[place], int | float) for row in rows) for place in range(len(columns))]
    head = "".join(f"<th{_class(name, at_right)}>{escape(name)}</th>" for name, at_right in zip(columns, right, strict=True))
    body = "".join(f"<tr>{''.join(map(_cell, row, right))}</tr>" for row in rows)
    label = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f'<div class="wide"><table>{label}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(value: Any, at_right: bool) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    shown = escape(text)
    if isinstance(value, Link):
        shown = f'<a href="{escape(quote(value.address))}">{shown}</a>'
    return f"<td{_class(text, at_right)}>{shown}</td>"


def _class(text: str, at_right: bool) -> str:
    names = ["number"] * at_right + ["short"] * (len(text) <= _SHORT)
    return f' class="{" ".join(names)}"' if names else ""
