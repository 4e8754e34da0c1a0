"""Deprecations in NVIDIA's docstrings, with their version and the replacement.

A docstring contains them in one of three places: at the start of a line (``[DEPRECATED] Deprecated in TensorRT 10.1. ...``), after
the name of a property in its class's docstring (``:ivar name: [DEPRECATED] ...``), or as the words ``Deprecated, use ... instead``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_PROPERTY = re.compile(r":ivar (\w+):")
_MARK = re.compile(
    r"(?:^\s*(?:\w+ : )?|:ivar \w+:\s*(?::class:`[^`]*`\s*)?)[\[(]deprecated[^\])]*[\])]\s*|\b(?=deprecated, use )", re.I | re.M
)
_END = re.compile(r"\n\s*(?:\n|:|\*\*)")  # a blank line, the next field, or a note


def parse_deprecations(name: str, doc: str) -> Iterator[tuple[str, str]]:
    """What the docstring of `name` (a class, function or member) calls deprecated: names with their sentences.

    The sentence is on one line, without the mark; it is ``"Deprecated."`` if the docstring gives no sentence.
    """
    own, *properties = re.split(r"(?=:ivar \w+:)", doc.partition("\nMembers:\n")[0])
    if text := _sentence(own):
        yield name, text
    for entry in properties:
        found = _PROPERTY.match(entry)
        if found and (text := _sentence(entry)):
            yield f"{name}.{found[1]}", text


def _sentence(doc: str) -> str:
    mark = _MARK.search(doc)
    if mark is None:
        return ""
    text = " ".join(_END.split(doc[mark.end() :], maxsplit=1)[0].split()).rstrip(")")
    return text or "Deprecated."
