"""Recorded results: every file says where it was measured, and a missing one is an error that names the others."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from course_lib.benchmark.records import RESULTS, recorded

NAMES = sorted(file.stem for file in RESULTS.glob("*.json"))


@pytest.mark.parametrize("name", NAMES)
def test_every_record_names_its_machine(name: str) -> None:
    record = recorded(name)
    assert record.rows
    for part in (record.device, record.driver, record.date, f"{name}.json", *record.versions.values()):
        assert part in record.source


def test_records_travel_with_the_package() -> None:
    """What an instructor hands out is lectures, labs and the library: no file of another folder is read by a notebook."""
    root = Path(__file__).resolve().parents[2]
    notebooks = [*root.glob("lectures/*.ipynb"), *root.glob("solutions/*/*.ipynb")]
    assert notebooks and root / "course_lib" in RESULTS.parents
    outside = re.compile(r"RESULTS\.parent|[\"'](benchmarks|tests|docs|solutions)[/\"']|\btests/data\b")
    for path in notebooks:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
        assert not outside.search(code), path.name
