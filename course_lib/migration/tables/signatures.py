"""Signatures out of the docstrings of pybind11, as plain JSON values.

A docstring begins with ``name(self: Class, first: int, second: str = 'x') -> bool``; an overloaded function has one such line
for each overload, numbered.
"""

from __future__ import annotations

import itertools
import re
from typing import TypedDict

_OVERLOAD = re.compile(r"^\d+\. ")
_PREFIX = re.compile(r"tensorrt(_rtx)?_bindings\.tensorrt(_rtx)?\.|\b(typing|typing_extensions|collections\.abc)\.")
_CPP_PREFIX = re.compile(r"\bnv(infer1|onnxparser)::(v_\d+_\d+::)?")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_OPENING, _CLOSING = "([{<", ")]}>"


class Overload(TypedDict):
    """One signature without `self`.

    Types and defaults are texts without the names of their modules. A type that the docstring does not state is empty.

    Attributes:
        parameters: ``[name, type]`` or ``[name, type, default]`` each.
        returns: the type of the result.
    """

    parameters: list[list[str]]
    returns: str


def parse_signatures(doc: str) -> list[Overload]:
    """All overloads in a docstring; an empty list for text that does not begin with a signature."""
    first, *rest = doc.splitlines() or [""]
    if first.endswith("(*args, **kwargs)") and "Overloaded function." in rest:
        lines = [_OVERLOAD.sub("", line) for line in rest if _OVERLOAD.match(line)]
    else:
        lines = [first]
    return [signature for line in lines if (signature := _parse(_short(line))) is not None]


def _short(text: str) -> str:
    return _ADDRESS.sub("", _CPP_PREFIX.sub("", _PREFIX.sub("", text)))


def _parse(line: str) -> Overload | None:
    """One signature; None for any other line, such as "Initialize self."."""
    start, end = line.find("("), _closing(line)
    if start < 0 or end < 0 or " " in line[:start].strip():
        return None
    parameters = [_parameter(text) for text in _split(line[start + 1 : end])]
    if parameters and parameters[0][0] in ("self", "this"):
        del parameters[0]
    return {"parameters": parameters, "returns": line[end + 1 :].strip().removeprefix("->").strip()}


def _parameter(text: str) -> list[str]:
    declared, has_default, default = text.partition("=")
    name, _, kind = declared.partition(":")
    return [name.strip(), kind.strip(), *([default.strip()] if has_default else [])]


def _closing(line: str) -> int:
    """The position at which the first opened parenthesis closes; -1 if it does not close."""
    depth = 0
    for place, sign in _brackets(line):
        depth += 1 if sign in _OPENING else -1
        if depth == 0:
            return place
    return -1


def _split(text: str) -> list[str]:
    """The parts between commas outside all brackets."""
    depth, cuts = 0, [-1]
    for place, sign in _brackets(text, also=","):
        if sign == ",":
            cuts += [place] if depth == 0 else []
        else:
            depth += 1 if sign in _OPENING else -1
    cuts.append(len(text))
    return [part for a, b in itertools.pairwise(cuts) if (part := text[a + 1 : b].strip())]


def _brackets(text: str, also: str = "") -> list[tuple[int, str]]:
    """Brackets with their positions. The ``>`` of an arrow is not a bracket."""
    wanted = _OPENING + _CLOSING + also
    return [(i, sign) for i, sign in enumerate(text) if sign in wanted and not (sign == ">" and text[i - 1 : i] == "-")]
