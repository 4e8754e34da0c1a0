"""The process that reads a submitted notebook before anything else does: a file in, the notebook without outputs out.

It is started as a file, with ``python -I``, under limits on time and memory, because parsers of learners' files have no bounds of
their own. It does not import the course.
"""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

MOST_BYTES, MOST_CELLS, MOST_TEXT = 20 << 20, 500, 1 << 20  # of the file with its outputs, and characters of all cells together
MOST_LEFT = 8 << 20  # bytes without outputs
MOST_VALUES = 200_000  # without outputs; the course's notebooks have about a thousand
MOST_DIGITS = 18  # of a whole number: larger ones can be chosen to have one hash, and then a set of them takes minutes
MOST_BRACKETS = 5_000  # nbconvert looks for links, in a time that grows with the square of their number
_ALWAYS_SHOWN = 2_000  # characters of code: their colors take at most a second, whatever they are


def cleaned(content: bytes) -> str:
    """The notebook as JSON, without outputs and without what chooses another highlighter.

    Raises:
        Exception: it is not a valid notebook or too large; the text says why, in one line.
    """
    if len(content) > MOST_BYTES:
        raise ValueError(f"more than {MOST_BYTES >> 20} MiB")
    document = json.loads(
        content.decode("utf-8-sig"), parse_int=_whole
    )  # json would take UTF-16 as well, and other readers would not
    sheets = document.get("worksheets", [])  # of the format before the current one
    cells = [*document.get("cells", []), *(cell for sheet in sheets for cell in sheet.get("cells", []))]
    for cell in cells:
        if "outputs" in cell:  # nbformat needs a millisecond for each invalid one
            cell["outputs"] = []
        cell["metadata"].pop("magics_language", None)
    sources = [(cell.get("cell_type"), _source(cell)) for cell in cells]
    brackets = sum(source.count("[") for kind, source in sources if kind == "markdown")
    for found, most, what in (
        (len(cells), MOST_CELLS, "cells"),
        (_values(document), MOST_VALUES, "values"),
        (sum(len(source) for _, source in sources), MOST_TEXT, "characters in its cells"),
        (brackets, MOST_BRACKETS, "brackets in the text"),
    ):
        if found > most:
            raise ValueError(f"{found:,} {what}, at most {most:,} are taken")
    _highlight([source for kind, source in sources if kind != "markdown"])
    if len(text := json.dumps(document)) > MOST_LEFT:
        raise ValueError(f"more than {MOST_LEFT >> 20} MiB without its outputs")
    _validate(text)
    return text


def _whole(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"a whole number of {len(digits):,} digits, at most {MOST_DIGITS} are taken")
    return int(digits)


def _validate(text: str) -> None:
    import nbformat

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the first line on standard error is the reason
        try:
            nbformat.validate(nbformat.reads(text, as_version=4))
        except nbformat.ValidationError as error:  # the other lines show the schema and the cell
            raise nbformat.ValidationError(str(error).partition("\n")[0][:200]) from None


def _source(cell: dict[str, Any]) -> str:
    source = cell.get("source", cell.get("input", ""))  # the second name is the older format's
    return source if isinstance(source, str) else "".join(source)


def _values(document: object) -> int:
    """Objects, lists and their entries, however deep."""
    count, left = 0, [document]
    while left:
        found = left.pop()
        count += 1
        left += found.values() if isinstance(found, dict) else found if isinstance(found, list) else ()
    return count


def _highlight(sources: list[str]) -> None:
    """Highlight code as a page does. The regular expressions have no bound on their time, on some texts of 10 kB."""
    if sum(map(len, sources)) < _ALWAYS_SHOWN:
        return
    import pygments
    from IPython.lib.lexers import IPython3Lexer
    from pygments.formatters import HtmlFormatter

    for source in sources:
        pygments.highlight(source, IPython3Lexer(), HtmlFormatter())


def main(path: str, seconds: int, memory_bytes: int) -> None:
    """Print the cleaned notebook, or end with status 1 and the reason."""
    import resource

    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    try:
        with open(path, "rb") as file:
            text = cleaned(file.read(MOST_BYTES + 1))
    except Exception as error:  # whatever a learner's file does to a parser
        sys.exit(f"{type(error).__name__}: {error}")
    sys.stdout.write(text)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
