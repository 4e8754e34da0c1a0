"""The process that reads a submitted notebook before anything else does, and writes it as nbgrader needs it.

Tools write notebooks in many ways: other versions of the format, copied cells, widgets without their state. Only three things of
a cell count: its type, its text, and the graded cell that it is. So a new notebook is written with them. Everything else, including
nbgrader's metadata, comes from the released notebook.

It is started as a file, with ``python -I``, under limits on time and memory, because parsers of learners' files have no bounds of
their own. It does not import the course.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

MOST_BYTES, MOST_CELLS, MOST_TEXT = 20 << 20, 500, 1 << 20  # of the file with its outputs, and characters of all cells together
MOST_BRACKETS = 5_000  # nbconvert looks for links, in a time that grows with the square of their number
_ALWAYS_SHOWN = 2_000  # characters of code: their colors take at most a second, whatever they are
_TYPES = {"code": "code", "raw": "raw"}  # every other type is text, such as the headings of older formats

Cell = tuple[str, str, str]  # type, text, and grade id ("" for none)


def read(content: bytes, released: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The notebook that is graded, and why the submitted one cannot be read, "" if it can.

    A written answer that cannot be found becomes a cell that asks a person to look at the submitted file, so its points stay open.
    """
    cells: list[Cell] = []
    problem = ""
    try:
        cells = [_cell(raw_cell) for raw_cell in _raw_cells(content) if isinstance(raw_cell, dict)]
        if not cells:
            raise ValueError("it has no cells")
        _check_limits(cells)
    except Exception as error:  # whatever a learner's file does to a parser
        cells, problem = [], f"{type(error).__name__}: {error}"
    return grafted(cells, released, problem), problem


def grafted(cells: list[Cell], released: dict[str, Any], problem: str = "") -> dict[str, Any]:
    """A notebook with the learner's text and the released notebook's metadata. Without `cells`, it is the released notebook."""
    known = {_grade_id(cell): cell for cell in released["cells"] if _grade_id(cell)}
    graded: dict[str, int] = {}  # of several cells with one id, the first that was changed
    for index, (_, text, grade_id) in enumerate(cells):
        unchanged = grade_id in graded and _is_released(cells[graded[grade_id]][1], known[grade_id])
        if grade_id in known and (grade_id not in graded or (unchanged and not _is_released(text, known[grade_id]))):
            graded[grade_id] = index
    written = [
        {**known[grade_id], "source": text}
        if graded.get(grade_id) == index
        else {"cell_type": kind, "source": text, "metadata": {}}
        for index, (kind, text, grade_id) in enumerate(cells)
    ] or [dict(cell) for cell in released["cells"]]
    reason = problem or "the notebook does not have the cell of this question"
    lost_answer = f"The answer to this question was not found ({reason}). Open the submitted file, then give the points."
    for grade_id, cell in known.items():
        marks = cell["metadata"]["nbgrader"]
        if grade_id not in graded and marks.get("grade") and marks.get("solution") and cell["cell_type"] == "markdown":
            lost = {**cell, "source": lost_answer}
            written = [lost if _grade_id(other) == grade_id else other for other in written]
            written += [] if lost in written else [lost]
    for index, cell in enumerate(written):
        cell["id"] = f"cell-{index}"
        if cell["cell_type"] == "code":
            cell |= {"outputs": [], "execution_count": None}
    return {**released, "cells": written}


def _raw_cells(content: bytes) -> list[Any]:
    """The cells as the file has them.

    Raises:
        Exception: it cannot be read.
    """
    if len(content) > MOST_BYTES:
        raise ValueError(f"more than {MOST_BYTES >> 20} MiB")
    text = content.decode("utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig", errors="replace")
    cells: list[Any] = json.loads(text).get("cells", [])
    return cells


def _cell(raw: dict[str, Any]) -> Cell:
    source = raw.get("source", "")
    text = source if isinstance(source, str) else "".join(line for line in source if isinstance(line, str))
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # half of a character cannot be written
    return _TYPES.get(str(raw.get("cell_type")), "markdown"), text, _grade_id(raw)


def _grade_id(cell: dict[str, Any]) -> str:
    metadata = cell.get("metadata")
    marks = metadata.get("nbgrader") if isinstance(metadata, dict) else None
    grade_id = marks.get("grade_id") if isinstance(marks, dict) else None
    return grade_id if isinstance(grade_id, str) else ""


def _is_released(text: str, cell: dict[str, Any]) -> bool:
    return text.strip() in ("", "".join(cell["source"]).strip())


def _check_limits(cells: list[Cell]) -> None:
    """Raises ValueError for what would take a reader of the page too long."""
    brackets = sum(text.count("[") for kind, text, _ in cells if kind == "markdown")
    for found, most, what in (
        (len(cells), MOST_CELLS, "cells"),
        (sum(len(text) for _, text, _ in cells), MOST_TEXT, "characters in its cells"),
        (brackets, MOST_BRACKETS, "brackets in the text"),
    ):
        if found > most:
            raise ValueError(f"{found:,} {what}, at most {most:,} are taken")
    _highlight(text for kind, text, _ in cells if kind != "markdown")


def _highlight(sources: Iterator[str]) -> None:
    """Highlight code as a page does. The regular expressions have no bound on their time, on some texts of 10 kB."""
    texts = list(sources)
    if sum(map(len, texts)) < _ALWAYS_SHOWN:
        return
    import pygments
    from IPython.lib.lexers import IPython3Lexer
    from pygments.formatters import HtmlFormatter

    for text in texts:
        pygments.highlight(text, IPython3Lexer(), HtmlFormatter())


def main(path: str, released: str, seconds: int, memory_bytes: int) -> None:
    """Print `read` of two files as JSON."""
    import resource

    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    with open(path, "rb") as file, open(released, encoding="utf-8") as original:
        json.dump(read(file.read(MOST_BYTES + 1), json.load(original)), sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
