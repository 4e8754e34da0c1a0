"""`benchmarks/raw_calls.py` with the stand-in in place of TensorRT and pycuda, and what the page says of its record."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import raw_calls
from benchmarks.raw_calls_parts import material
from course_lib.labs.lab06_qat import given as lab06
from course_lib.labs.lab06_qat import reference as lab06_reference
from course_lib.labs.lab09_runtime.given import BROKEN, MIXED, PLAIN
from course_lib.labs.lab09_runtime.reference import SERVING_LOOP
from docs import conformance
from tests.labs.submissions import changed, table

STANDIN = """
import runpy, sys

from course_lib.standin import installation

sys.argv[:] = sys.argv[1:]
with installation.installed("10.16"):
    runpy.run_path(sys.argv[0], run_name="__main__")
"""
RAW = {"exercise 2.1", "exercise 2.3", "exercise 8.1", "exercise 10.1", "exercise 10.5"}


LOOPS = table("lab09")
THREE_STREAMS = LOOPS["three_streams"]
ONE_SET = LOOPS["mistakes"]["it waits after each request"]["changes"]["serving_loop.py"]


def _calibrated(learner: str) -> dict[str, dict[str, Any]]:
    return {
        name: {"codes": one.weight, "scale": one.scale, "bias": one.bias, "input_scale": np.float32(one.input_scale)}
        for name, one in lab06.calibration(learner).items()
    }


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that runs the script with these arguments and returns the record."""
    (tmp_path / "standin.py").write_text(STANDIN)
    monkeypatch.setenv("COURSE_ENVIRONMENTS", f"standin={sys.executable} {tmp_path / 'standin.py'}")
    monkeypatch.setattr(lab06_reference, "trained", _calibrated)  # training takes 10 s

    def run(*arguments: object) -> dict[str, Any]:
        options = (
            "--output",
            tmp_path / "record.json",
            "--folder",
            tmp_path,
            "--target",
            "tensorrt@standin",
            "--size",
            "small",
        )
        monkeypatch.setattr(sys, "argv", ["raw_calls.py", *map(str, (*options, *arguments))])
        raw_calls.main()
        return dict(json.loads((tmp_path / "record.json").read_text()))

    return run


def test_the_loops_of_lab_09_and_the_cells_of_its_notebook(recorded: Any, tmp_path: Path) -> None:
    never_frees = [("self.device_in.free()", "KEPT.append(self.device_in)"), ("LARGEST = ", "KEPT = []\nLARGEST = ")]
    loops = {
        "streams": THREE_STREAMS,
        "one_set": changed(SERVING_LOOP, ONE_SET),
        "keeps": changed(SERVING_LOOP, never_frees),
        "wrong": changed(SERVING_LOOP, [("self.host_out[:rows].copy()", "2 * self.host_out[:rows]")]),
    }
    for name, text in loops.items():
        (tmp_path / f"{name}.py").write_text(text)
    record = recorded("--sections", "lab09", "--loops", *(tmp_path / f"{name}.py" for name in loops))
    rows = {row["code"].removeprefix("lab09: "): row for row in record["rows"]}
    assert set(rows) == {"cells of the notebook", "serving_loop.py", *(f"{name}.py" for name in loops)}
    for name in ("cells of the notebook", "serving_loop.py", "streams.py", "one_set.py"):
        assert rows[name]["ran"] and rows[name]["right"] and rows[name]["missing"] == [], rows[name]
    reference = rows["serving_loop.py"]
    assert [reference[scene]["answered"] for scene in (PLAIN, MIXED, BROKEN)] == [18, 7, 0]
    assert reference[BROKEN]["ended_with"].startswith("ConnectionError")
    assert not any(reference[scene]["bytes_left_by_a_call"] for scene in (PLAIN, MIXED, BROKEN))
    assert reference["overlap"]["speedup"]["median"] > 0
    assert rows["keeps.py"][PLAIN]["bytes_left_by_a_call"] >= 64 * 128 * 4
    assert rows["wrong.py"]["ran"] and not rows["wrong.py"]["right"]
    assert "after the wait" in " ".join(rows["cells of the notebook"]["printed"])
    assert record["versions"]["tensorrt"].startswith("10.16") and record["date"] and record["device"]


def test_the_exercises_and_the_builds_of_lab_03(recorded: Any) -> None:
    record = recorded("--sections", "exercises", "lab03")
    rows = {row["code"]: row for row in record["rows"]}
    assert set(rows) == {*RAW, "lab03: recipe.toml", "lab03: timing.py"}
    assert {code for code, row in rows.items() if row["right"]} == set(rows) - {"exercise 2.3"}
    assert rows["exercise 2.3"]["error"].startswith("AttributeError") and rows["exercise 2.3"]["missing"]
    assert {code for code, row in rows.items() if row.get("missing")} == {"exercise 2.1", "exercise 2.3"}
    assert rows["lab03: recipe.toml"]["optimization_level"] == 3 and rows["lab03: timing.py"]["runs"] == 45
    assert "lab03: timing_cache.py" in record["no_tensorrt_calls"] and not RAW & set(record["no_tensorrt_calls"])


def test_every_answer_that_calls_tensorrt_is_run_and_every_call_is_in_the_table() -> None:
    found = {name: material.calls(text)["calls"] for name, text in material.answers().items()}
    assert {name for name, calls in found.items() if calls} == RAW
    found |= {text: material.calls(text)["calls"] for text in (SERVING_LOOP, THREE_STREAMS)}
    solutions = [
        material.ROOT / "solutions" / name for name in ("lecture02.py", "lecture08.py", "lecture10.py", "lab09_runtime")
    ]
    table = {row.name for row in conformance.check(solutions)[0]}
    assert table >= {name for calls in found.values() for name in calls}
    cells = material.cells_before_task_1(material.ROOT / "labs" / "lab09_runtime" / "lab09_runtime.ipynb")
    assert table >= set(material.calls(cells)["calls"]) and "Logger.WARNING" in material.calls(cells)["calls"]
