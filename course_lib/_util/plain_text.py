"""Text from outside, made safe to print: one line without anything that a terminal or a browser would obey."""

from __future__ import annotations

from typing import Any

_REPLACED = "\N{REPLACEMENT CHARACTER}"


def plain(text: Any, most: int = 1000) -> str:
    """One line of printable characters, at most `most` of them.

    White space of every kind becomes one space. Control characters, marks that turn the direction of text, halves of characters and
    unassigned code points are replaced.
    """
    cut = str(text)[: 4 * most]
    return "".join(one if one.isprintable() else _REPLACED for one in " ".join(cut.split()))[:most]


def first_line(error: BaseException) -> str:
    """The first line of an error's message, at most 300 characters; the name of the error's class if there is no message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
