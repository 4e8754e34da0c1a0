"""The script that runs the lectures' cells on a GPU: what it records of a notebook, and which cells it is about."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks import gpu_cells


@pytest.fixture
def lecture(tmp_path: Path) -> Path:
    def cell(identifier: str, source: str, *tags: str) -> dict[str, Any]:
        return {"cell_type": "code", "id": identifier, "metadata": {"tags": list(tags)}, "source": [source]}

    cells = [
        cell("set", "import os\nnumber = 6"),
        cell("native", "_ = os.write(1, b'from native code')", "gpu"),
        cell("fails", "1 / 0"),
        cell("later", "print(7 * number)", "gpu"),
        cell("no-syntax", "print(", "gpu"),
    ]
    path = tmp_path / "99_a_lecture.ipynb"
    path.write_text(json.dumps({"cells": cells}))
    return path


def test_a_lecture_runs_to_its_end_and_its_tagged_cells_and_failures_are_rows(lecture: Path) -> None:
    rows = {row.pop("cell"): row for row in gpu_cells._in_own_process(lecture)}
    assert list(rows) == ["native", "fails", "later", "no-syntax"]
    assert rows["later"]["printed"] == "42\n" and "failed" not in rows["later"]
    assert rows["fails"]["failed"].startswith("ZeroDivisionError") and not rows["fails"]["gpu"]
    assert rows["no-syntax"]["failed"].startswith("SyntaxError") and rows["no-syntax"]["gpu"]


def test_every_cell_that_says_what_it_would_do_on_a_gpu_has_the_tag() -> None:
    for path in (gpu_cells.ROOT / "lectures").glob("*.ipynb"):
        for cell in gpu_cells._cells(path):
            if re.search(r"no (GPU|TensorRT)[^\n]{0,30} here", "".join(cell["source"])):
                assert gpu_cells._for_gpu(cell), f"{path.name}: cell {cell['id']} has no tag {gpu_cells.TAG!r}"
    assert list(gpu_cells.lectures()) == ["02", "03", "04", "05", "08", "09", "10", "11", "12"]
