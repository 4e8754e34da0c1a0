"""Rules as data: tables of the TOML files in this folder."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from course_lib._util.toml_text import loads


def rows(file: str, table: str) -> list[dict[str, Any]]:
    """The rows of an array of tables, with tuples in place of lists."""
    found = _read(file)[table]
    return [{key: tuple(value) if isinstance(value, list) else value for key, value in row.items()} for row in found]


@cache
def _read(file: str) -> dict[str, Any]:
    return loads((Path(__file__).parent / file).read_text(encoding="utf-8"))
