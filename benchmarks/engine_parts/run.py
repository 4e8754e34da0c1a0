"""One run of `engines.py`: where it builds, until when, and what it has found so far."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.recording import Row, one_line, save


@dataclass
class Run:
    """Attributes:
    target: of the engines, such as ``tensorrt@trt8``.
    folder: of ONNX files and plans.
    output: the record, written after every row.
    ends: on ``time.monotonic()``; nothing is begun after that.
    seconds: longest measuring of one group at one batch size.
    known: what the record says besides its rows.
    """

    target: str
    folder: Path
    output: Path
    ends: float
    seconds: float
    known: Row
    rows: list[Row] = field(default_factory=list)

    @property
    def in_time(self) -> bool:
        return time.monotonic() < self.ends

    def add(self, row: Row) -> None:
        self.rows.append(row)
        print(line(row), flush=True)
        save(self.output, self.known, self.rows)

    def has(self, **key: Any) -> bool:
        return any(key.items() <= row.items() for row in self.rows)

    def attempt(self, key: Row, make: Callable[[], Row]) -> None:
        """Add the row of this key, or what kept it from being made, unless it is there or the time is up."""
        if self.in_time and not self.has(**key):
            self.add(tried(key, make))

    def plan_file(self, engine: str) -> Path:
        return self.folder / f"{engine.replace(' ', '-').replace(',', '')}.plan"

    def model_file(self, network: str) -> Path:
        return self.folder / f"{network}.onnx"


def tried(key: Row, make: Callable[[], Row]) -> Row:
    """The row, or the key with one line on what failed."""
    try:
        return {**key, **make()}
    except Exception as error:  # one row's failure is its own
        return {**key, "failed": one_line(error)}


def line(row: Row) -> str:
    """One row for the terminal."""
    where = [str(row[key]) for key in ("table", "group", "engine", "from") if key in row]
    begin = ", ".join([*where, f"batch {row['batch']}"] if "batch" in row else where)
    if "failed" in row:
        return f"{begin}: failed: {row['failed']}"
    shown = {key: value for key, value in row.items() if key not in ("table", "group", "engine", "from", "batch", "over")}
    if "speedup" in row:
        shown["speedup"] = "{median:.3f}x [{low:.3f}-{high:.3f}]".format(**row["speedup"])
    return f"{begin}: {json.dumps(shown)}"
