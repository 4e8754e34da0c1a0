"""Results that were measured on another machine and recorded in ``course_lib/records``. They are shown only with the machine's name."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course_lib.errors import CourseError

RESULTS = Path(__file__).resolve().parents[1] / "records"

# NVIDIA, TensorRT 8.6.0 release notes: "8.6.0 Early Access (EA)"; the general release is 8.6.1.
_EARLY_ACCESS = {("tensorrt", "8.6.0")}


@dataclass(frozen=True)
class Record:
    """One recorded file: the rows, and where they come from.

    Attributes:
        name: the file's name without its ending.
        device: the GPU, such as ``NVIDIA H200``. ``driver`` is the version of its driver, ``versions`` those of the libraries.
        date: the day of the measurement, ISO 8601.
        rows: the measurements. The script that wrote the file documents them; units are in the names.
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
        versions = ", ".join(f"{name} {release(name, version)}" for name, version in self.versions.items())
        return f"recorded on {self.device}, driver {self.driver}, {versions}, {self.date} (course_lib/records/{self.name}.json)"

    def section(self, name: str) -> list[dict[str, Any]]:
        """The rows of a section, of a record whose rows have a ``section`` and a ``case``."""
        return [row for row in self.rows if row.get("section") == name]

    def case(self, section: str, case: str) -> dict[str, Any]:
        """One row of a section.

        Raises:
            CourseError: the record has no such row.
        """
        cases = {row["case"]: row for row in self.section(section)}
        if case not in cases:
            known = ", ".join(cases) or "none"
            raise CourseError(f"{self.name} has no case {case!r} in section {section!r}: there are {known}")
        return cases[case]


def release(library: str, version: str) -> str:
    """A version, with a remark if it is not a general release: ``8.6.0 (an early-access release of 2023)``."""
    return version + (" (an early-access release of 2023)" if (library, version) in _EARLY_ACCESS else "")


def recorded(name: str) -> Record:
    """The results recorded as ``course_lib/records/NAME.json``.

    Raises:
        CourseError: there is no such record, or it does not name its machine.
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
