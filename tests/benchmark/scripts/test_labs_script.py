"""`benchmarks/labs.py` on this machine, with the lab whose grading is the shortest."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import readme_tables
from course_lib.grading.isolation import sandbox

pytestmark = pytest.mark.slow  # real gradings
SCRIPT = Path(__file__).resolve().parents[3] / "benchmarks" / "labs.py"


def run(output: Path, *options: str) -> list[dict]:
    trusted = ["--trusted"] if sandbox.problem() else []
    command = [sys.executable, SCRIPT, output, "--labs", "lab08", *trusted, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_reference_and_the_untouched_release(tmp_path):
    output = tmp_path / "labs.json"
    rows = run(output)
    assert [(row["kind"], row["score"], row["max_score"], row["fault"]) for row in rows] == [
        ("reference", 10, 10, ""),
        ("untouched", 0, 10, ""),
    ]
    record = json.loads(output.read_text())
    assert record["rows"] == rows and record["device"] and "labs.py" in record["command"]
    assert run(output) == [], "what is there is not graded again"
    written = readme_tables.labs({**record, "versions": {"tensorrt": "8.6.0"}})
    assert "| lab08 | 1 of 1 | 1 of 1 |" in written


def test_a_grading_that_takes_too_long_is_a_row_and_is_tried_again(tmp_path):
    output = tmp_path / "labs.json"
    for _ in range(2):
        (row,) = run(output, "--kinds", "reference", "--longest", "1", "--shortest", "0.5")
        assert row["failed"] == "not graded within 1 s"
    assert "| lab08 | 0 of 1 | 0 of 0 | not finished |" in readme_tables.labs(
        {**json.loads(output.read_text()), "versions": {"tensorrt": "8.6.0"}}
    )
