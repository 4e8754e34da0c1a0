"""Rules as data: tables of the TOML files in this folder."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def rows(file: str, table: str) -> list[dict[str, Any]]:
    """The rows of an array of tables, with tuples in place of lists."""
    read = tomllib.loads((Path(__file__).parent / file).read_text(encoding="utf-8"))
    return [{key: tuple(value) if isinstance(value, list) else value for key, value in row.items()} for row in read[table]]
