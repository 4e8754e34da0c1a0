"""The scoreboard: every lecture's cell and answer give the recorded row, and a reader's rows replace recorded ones."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import nbformat
import numpy as np
import onnx
import pytest

from benchmarks.scoreboard import NOTES, STEPS, solved
from course_lib.benchmark import recorded
from course_lib.errors import CourseError
from course_lib.exercises import progress
from course_lib.models import digits
from course_lib.teaching import scoreboard

ROOT = Path(__file__).resolve().parents[2]
LECTURES = sorted(STEPS | NOTES)
ROWS = {row["lecture"]: row for row in recorded("scoreboard_cpu").rows}


@pytest.fixture(autouse=True)
def no_rows_and_no_race(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(scoreboard, "speed", lambda engine: [2.0, 1.9, 2.1])


@pytest.mark.parametrize("lecture", LECTURES)
def test_each_lecture_ends_with_a_cell_that_the_reader_completes(lecture: int) -> None:
    [path] = ROOT.glob(f"lectures/{lecture:02}_*.ipynb")
    cells = {cell["id"]: cell.source for cell in nbformat.read(path, as_version=4).cells}
    assert cells["scoreboard-step"].endswith(f"\nmine = ...\nscoreboard.after({lecture}, mine)")
    assert list(cells)[-5:] == ["scoreboard", "scoreboard-step", "scoreboard-hint", "summary", "sources"]
    assert "___" in cells["scoreboard-hint"]


@pytest.mark.parametrize("lecture", [2, 3, 4, 5, 6, 8, 9, 10])  # the others train, or measure time
def test_the_answer_gives_the_recorded_row(lecture: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoreboard, "accuracy", lambda engine: 0.99)  # 450 images take seconds
    board = scoreboard.after(lecture, solved(lecture))
    row, expected = json.loads((progress.folder() / "scoreboard" / f"{lecture}.json").read_text()), ROWS[lecture]
    exact = expected.keys() & {"kernels", "mb", "plan_mb", "value"}
    assert {key: row[key] for key in exact} == pytest.approx({key: expected[key] for key in exact}, rel=0.02)
    assert f"ecture {lecture}: " in board.takeaway and str(board.takeaway) in board._repr_html_()


def test_rows_that_are_missing_are_recorded_ones_and_say_so() -> None:
    assert f"○: recorded on {recorded('scoreboard_cpu').device}." in scoreboard.after(12)._repr_html_()
    scoreboard.after(4, 0.5)
    marks = [line.split()[:2] for line in repr(scoreboard.after(8)).splitlines()[1:]]
    assert marks == [["●" if lecture == 4 else "○", str(lecture)] for lecture in range(1, 9)]
    assert "50%" in repr(scoreboard.after(4))
    (progress.folder() / "scoreboard" / "4.json").write_text("{")  # damaged
    assert "3%" in scoreboard.after(4).takeaway


def test_accuracy_counts_each_digit_once() -> None:
    first = digits("test").labels[0]
    engine = SimpleNamespace(infer=lambda feeds: {"logits": np.tile(np.arange(10) == first, (len(feeds["image"]), 1))})
    assert scoreboard.accuracy(engine) == (digits("test").labels == first).mean()


@pytest.mark.parametrize(
    "lecture, result", [(4, "many"), (4, float("nan")), (4, True), (5, 0.5), (9, [1]), (3, onnx.ModelProto())]
)
def test_another_kind_of_result_is_rejected_and_not_kept(lecture: int, result: object) -> None:
    with pytest.raises(CourseError, match=r"found .*: (assign|export)"):
        scoreboard.after(lecture, result)
    assert not (progress.folder() / "scoreboard").exists()
