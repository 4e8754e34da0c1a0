"""Recorded results: every file says where it was measured, and a missing one is an error that names the others."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from course_lib.benchmark import records
from course_lib.benchmark.records import RESULTS, recorded
from course_lib.errors import CourseError

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


def test_what_is_missing_is_said(tmp_path, monkeypatch) -> None:
    with pytest.raises(CourseError, match=r"no recorded results 'moon': there are .*rope_h200"):
        recorded("moon")
    (tmp_path / "moon.json").write_text('{"device": "NVIDIA H200", "driver": "1", "versions": {"a": "1"}, "rows": [{}]}')
    monkeypatch.setattr(records, "RESULTS", tmp_path)
    with pytest.raises(CourseError, match=r"moon\.json does not say its date"):
        recorded("moon")
