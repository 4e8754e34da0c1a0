"""Results that were measured on another machine and recorded in ``course_lib/records``: shown with the machine's name or not at all."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course_lib.errors import CourseError

RESULTS = Path(__file__).resolve().parents[1] / "records"


@dataclass(frozen=True)
class Record:
    """One recorded file: the rows, and everything that a reader needs to know where they come from.

    Attributes:
        name: the file's name without its ending.
        device: such as ``NVIDIA H200``; ``driver`` its driver's version, ``versions`` those of the libraries.
        date: the day of the measurement, ISO 8601.
        rows: what was measured, as the script that wrote the file says; units are in the names.
    """

    name: str
    device: str
    driver: str
    versions: dict[str, str]
    date: str
    rows: list[dict[str, Any]]

    @property
    def source(self) -> str:
        """One line for under a figure: device, versions, date and file."""
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        return f"recorded on {self.device}, driver {self.driver}, {versions}, {self.date} (course_lib/records/{self.name}.json)"


def recorded(name: str) -> Record:
    """The results recorded as ``course_lib/records/NAME.json``.

    Raises:
        CourseError: there is no such record, or it does not say where it was measured.
    """
    path = RESULTS / f"{name}.json"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in RESULTS.glob("*.json")))
        raise CourseError(f"no recorded results {name!r}: there are {known or 'none'}")
    data = json.loads(path.read_text(encoding="utf-8"))
    missing = [key for key in ("device", "driver", "versions", "date", "rows") if not data.get(key)]
    if missing:
        raise CourseError(f"{path.name} does not say its {', '.join(missing)}: record it again with its script in benchmarks/")
    return Record(name, data["device"], data["driver"], data["versions"], data["date"], data["rows"])
