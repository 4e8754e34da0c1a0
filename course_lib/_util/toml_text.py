"""TOML text whose numbers the rest of a program can take."""

from __future__ import annotations

import sys
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_LARGEST = 2**63 - 1


def loads(text: str) -> dict[str, Any]:
    """The table in a TOML text.

    Raises:
        ValueError: not TOML, or an integer needs more than 64 bits. Python reads hexadecimal ones of any length, but does not print them.
        RecursionError: it is nested too deep.
    """
    found = tomllib.loads(text)
    left: list[tuple[str, object]] = list(found.items())
    while left:
        key, value = left.pop()
        if isinstance(value, dict):
            left += value.items()
        elif isinstance(value, list):
            left += ((key, one) for one in value)
        elif isinstance(value, int) and abs(value) > _LARGEST:
            raise ValueError(f"{key[:40]!r} has an integer that needs more than 64 bits")
    return found
