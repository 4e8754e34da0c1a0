"""Text from outside, made safe to print: one line without anything that a terminal or a browser would obey."""

from __future__ import annotations

import unicodedata
from typing import Any

_MARKS = 3  # drawn over one character: no language needs more, and dozens cover the lines above and below
_REPLACED = "\N{REPLACEMENT CHARACTER}"


def plain(text: Any, most: int = 1000) -> str:
    """One line of printable characters, at most `most` of them.

    White space of every kind becomes one space. Control characters, marks that turn the direction of text, halves of characters and
    unassigned code points are replaced. Of marks that are drawn over one character, as many as a language needs are left.
    """
    found, marks = [], 0
    for one in " ".join(str(text)[: 4 * most].split()):
        marks = marks + 1 if unicodedata.category(one) in ("Mn", "Me") else 0
        if marks <= _MARKS:
            found.append(one if one.isprintable() else _REPLACED)
    return "".join(found)[:most]


def first_line(error: BaseException) -> str:
    """The first line of an error's message, at most 300 characters; the name of the error's class if there is no message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
