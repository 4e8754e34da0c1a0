"""Limits for a submitted notebook: it is read, run and shown only if that is bounded in time and memory."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from course_lib._util.plain_text import plain

_LARGEST_NOTEBOOK, _MOST_CELLS = 20 << 20, 500
_MOST_VALUES = 200_000  # a small object takes a hundred times its text; the course's notebooks have about a thousand
_MOST_BRACKETS = 5_000  # nbconvert looks for links, in a time that grows with the square of their number
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')
_MOST_SECONDS = 5  # of a processor, for the colors of its code; the course's notebooks take a fiftieth
_ALWAYS_SHOWN = 2_000  # characters: their colors take at most a second, whatever they are
_HIGHLIGHT = """
import json, resource, sys
limit = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
import pygments
from IPython.lib.lexers import IPython3Lexer
from pygments.formatters import HtmlFormatter
for source in json.load(sys.stdin):
    pygments.highlight(source, IPython3Lexer(), HtmlFormatter())
"""


def unreadable(path: Path) -> str:
    """Why a notebook cannot be read or shown, or "".

    The submitted outputs are removed, because the notebook runs again, and so is what chooses another highlighter.
    """
    import nbformat

    try:
        if path.stat().st_size > _LARGEST_NOTEBOOK:
            raise ValueError(f"{path.stat().st_size >> 20} MiB, at most {_LARGEST_NOTEBOOK >> 20} are taken")
        content = path.read_bytes()
        if (found := sum(_STRING.sub(b"", content).count(mark) for mark in b"[{,")) > _MOST_VALUES:
            raise ValueError(f"{found:,} values, at most {_MOST_VALUES:,} are taken")
        _drop_outputs(document := _json(content))
        path.write_text(json.dumps(document), encoding="utf-8")
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
        if len(notebook.cells) > _MOST_CELLS:
            raise ValueError(f"{len(notebook.cells)} cells, at most {_MOST_CELLS} are taken")
        if (found := sum(cell.source.count("[") for cell in notebook.cells if cell.cell_type == "markdown")) > _MOST_BRACKETS:
            raise ValueError(f"{found:,} brackets in the text, at most {_MOST_BRACKETS:,} are taken")
        return _too_slow_to_show([cell.source for cell in notebook.cells if cell.cell_type == "code"])
    except FileNotFoundError:
        return "it is missing or not a plain file"
    except Exception as error:  # whatever a learner's file does to a parser
        return plain(f"{type(error).__name__}: {error}", 200)


def _json(content: bytes) -> Any:
    from nbformat.reader import NotJSONError

    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise NotJSONError(error) from None


def _drop_outputs(document: Any) -> None:
    """Drop outputs before nbformat reads them. It needs a millisecond for each invalid output, and a notebook can hold many.

    Raises:
        ValueError: the notebook has too many cells.
        AttributeError, KeyError, TypeError: the content is not a notebook.
    """
    sheets = document.get("worksheets", [])  # of the format before the current one
    cells = [*document.get("cells", []), *(cell for sheet in sheets for cell in sheet.get("cells", []))]
    if len(cells) > _MOST_CELLS:
        raise ValueError(f"{len(cells)} cells, at most {_MOST_CELLS} are taken")
    for cell in cells:
        if "outputs" in cell:
            cell["outputs"] = []
        cell["metadata"].pop("magics_language", None)


def _too_slow_to_show(sources: list[str]) -> str:
    """Why code cannot be shown, or "". Its colors come from regular expressions whose time has no bound, on some texts of 10 kB."""
    if sum(map(len, sources)) < _ALWAYS_SHOWN:
        return ""
    shown = subprocess.run(
        [sys.executable, "-I", "-c", _HIGHLIGHT, str(_MOST_SECONDS)],
        input=json.dumps(sources).encode(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return "" if shown.returncode == 0 else f"its code cannot be highlighted for display within {_MOST_SECONDS} s"
