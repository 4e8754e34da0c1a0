"""What every record of a benchmark says of itself, and a file that is whole after each row."""

from __future__ import annotations

import json
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from course_lib._util.files import write_atomically

Row = dict[str, Any]


def about(versions: Mapping[str, str]) -> Row:
    """Date, device, driver, versions and the command that runs now. Without a GPU the device is the processor."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        said = subprocess.run(query, capture_output=True, text=True, timeout=30).stdout.strip().splitlines()
    except (OSError, subprocess.TimeoutExpired):
        said = []
    device, _, driver = said[0].partition(", ") if said else (_processor(), "", "none: no GPU")
    command = shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]])
    return {
        "date": date.today().isoformat(),
        "device": device,
        "driver": driver,
        "versions": dict(versions),
        "command": command,
    }


def installed(*names: str) -> dict[str, str]:
    """Versions of the distributions that this interpreter has."""
    found = {}
    for name in names:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _processor() -> str:
    try:
        from course_lib.grading.judge.judging import provenance_of_machine
    except ImportError:  # an interpreter with a framework and numpy alone
        return platform.machine()
    return provenance_of_machine()


def rows_of(path: Path) -> list[Row]:
    """What an interrupted run of the same script has recorded; rows that failed are left out, to be tried again."""
    try:
        rows: list[Row] = json.loads(path.read_text(encoding="utf-8"))["rows"]
    except FileNotFoundError:
        return []
    return [row for row in rows if "failed" not in row]


def save(path: Path, known: Mapping[str, Any], rows: Sequence[Row], **more: Any) -> None:
    """Write all of it, or leave the file as it was."""
    write_atomically(path, (json.dumps({**known, **more, "rows": list(rows)}, indent=1) + "\n").encode())


def one_line(error: BaseException) -> str:
    """What a row says of its failure."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
