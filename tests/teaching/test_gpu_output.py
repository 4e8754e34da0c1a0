"""What a lecture shows in place of a cell's output on a GPU."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from course_lib.benchmark.records import Record, recorded
from course_lib.errors import CourseError
from course_lib.teaching.gpu_output import recorded_output

LECTURES = Path(__file__).resolve().parents[2] / "lectures"
# Cells that ran on no GPU yet. Without one they show another record; remove the name when the cell is recorded.
NOT_RECORDED = {"busy-build-gpu"}


def record(**row: object) -> Record:
    return Record(
        "some", "a GPU", "1", {"tensorrt": "8.6.0", "torch": "2.2.0"}, "2026-11-25", [{"cell": "one", "jobs": 1, **row}]
    )


def test_the_output_comes_below_its_machine(capsys: pytest.CaptureFixture[str]) -> None:
    recorded_output("one", record(printed="digits: 2\n\n"))
    assert capsys.readouterr().out == "Recorded on a GPU, TensorRT 8.6.0, torch 2.2.0, 2026-11-25:\ndigits: 2\n"
    recorded_output("one", record(printed="digits: 2\n\n", jobs=4))
    expected = "Recorded on a GPU, TensorRT 8.6.0, torch 2.2.0, 2026-11-25, while other lectures ran:\ndigits: 2\n"
    assert capsys.readouterr().out == expected


def test_an_unknown_cell_names_the_script() -> None:
    with pytest.raises(CourseError, match=r"some has no cell 'two': record it with benchmarks/gpu_cells.py"):
        recorded_output("two", record(printed=""))


def test_every_cell_that_lectures_show_is_recorded_and_did_not_fail() -> None:
    texts = "".join(path.read_text(encoding="utf-8") for path in LECTURES.glob("*.ipynb"))
    shown = re.findall(r'recorded_output\(\\"([a-z0-9-]+)\\"\)', texts)
    rows = {row["cell"]: row for row in recorded("gpu_cells_h200").rows if row["gpu"]}
    assert len(shown) > 10 and all("failed" not in rows[cell] for cell in shown)


def test_every_cell_for_a_gpu_is_recorded_or_listed() -> None:
    gone = "13"  # recorded before it ran the released Torch-TensorRT without a GPU
    cells = {row["cell"] for row in recorded("gpu_cells_h200").rows if row["gpu"] and row["lecture"] != gone}
    tagged = {
        cell["id"]
        for path in LECTURES.glob("*.ipynb")
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]
        if "gpu" in cell["metadata"].get("tags", ())
    }
    assert cells.isdisjoint(NOT_RECORDED)
    assert tagged == cells | NOT_RECORDED
