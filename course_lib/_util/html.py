"""HTML from Jinja2's templates. Every value is escaped, unless it is `markupsafe.Markup`, and a value that is missing is an error."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

GREEN, ORANGE, RED = "#009E73", "#E69F00", "#C62828"  # passed, open or in part, not yet
LEFT, RIGHT, WIDE = "text-align:left", "text-align:right", "text-align:left;min-width:13em"


def render(package: str, template: str, **values: Any) -> str:
    """The HTML of a template in the folder ``templates/`` of a package, such as ``"grading/reports"``. Floats have the format ``:g``."""
    return _environment(package).get_template(template).render(values)


def notebook_table(caption: str, columns: Mapping[str, str], rows: Iterable[tuple[Mapping[str, str], Sequence[str]]]) -> str:
    """A table as a cell's output in a notebook.

    Args:
        columns: their names, each with its CSS.
        rows: for each row the attributes of its element, and its cells.
    """
    return render("_util", "table.html", caption=caption, columns=columns, styles=[*columns.values()], rows=rows)


def check_card(
    title: str,
    mark: str,
    color: str,
    message: str,
    *,
    aside: str = "",
    columns: Sequence[str] = (),
    requirements: Sequence[Sequence[str]] = (),
    hint: str = "",
) -> str:
    """The result of a check as a cell's output, the same for exercises and labs, with a table of `course_lib.labs.requirements`."""
    columns, requirements = with_entries(columns, requirements)
    known: dict[str, Any] = {"title": title, "mark": mark, "color": color, "message": message, "aside": aside, "hint": hint}
    return render("_util", "check.html", **known, columns=columns, requirements=requirements)


def with_entries(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> tuple[list[str], list[list[Any]]]:
    """A table without its empty columns."""
    shown = [any(map(str, column)) for column in zip(*rows, strict=True)]
    return list(compress(columns, shown)), [list(compress(row, shown)) for row in rows]


def _code(text: object) -> Markup:
    """The text, escaped, with what it has between backticks as code."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


@cache
def _environment(package: str) -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parents[1] / package / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: f"{value:g}" if isinstance(value, float) else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["code"] = _code
    return environment
