"""Parse Python code that does not parse as it is, such as Python 2. Parts that cannot be read are cut out and returned as text."""

from __future__ import annotations

import ast
import warnings
from dataclasses import dataclass

_MOST_CUTS = 60


@dataclass(frozen=True)
class Parsed:
    """A syntax tree, the lines that are not in it, and why; `problem` is empty if the text is plain Python 3."""

    tree: ast.Module
    lost: tuple[tuple[int, str], ...] = ()
    problem: str = ""


def parse(text: str) -> Parsed:
    """Parse Python of any version as far as possible. Line numbers are those of `text`."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").replace("\f", " ").replace("\0", " ").split("\n")
    try:
        return Parsed(_tree(lines))
    except SyntaxError as error:
        problem = f"line {error.lineno}: {error.msg}"
    lines = [line.expandtabs(8) for line in lines]
    lost: list[tuple[int, str]] = []
    for _ in range(_MOST_CUTS):
        try:
            return Parsed(_tree(lines), tuple(lost), problem)
        except SyntaxError as error:
            place = _cut_at(lines, error)
            lost.append((place + 1, lines[place]))
            lines[place] = (
                " " * (len(lines[place]) - len(lines[place].lstrip())) + "pass" if lines[place].strip() != "pass" else ""
            )
    return Parsed(ast.Module([], []), tuple(enumerate(text.split("\n"), 1)), problem)


def _tree(lines: list[str]) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # escapes in strings that Python calls invalid since 3.6
        try:
            return ast.parse("\n".join(lines))
        except (RecursionError, MemoryError) as error:
            raise SyntaxError(f"nested too deeply ({type(error).__name__})", ("", 1, 1, "")) from None
        except ValueError as error:
            raise SyntaxError(str(error), ("", 1, 1, "")) from None


def _cut_at(lines: list[str], error: SyntaxError) -> int:
    place = min(max((error.lineno or 1) - 1, 0), len(lines) - 1)
    while place > 0 and not lines[place].strip():
        place -= 1  # the end of the text is blamed on an empty line
    return place
