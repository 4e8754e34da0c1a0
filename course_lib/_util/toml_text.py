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
    left: list[object] = [found]
    while left:
        value = left.pop()
        left += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        if isinstance(value, int) and abs(value) > _LARGEST:
            raise ValueError("an integer needs more than 64 bits")
    return found
