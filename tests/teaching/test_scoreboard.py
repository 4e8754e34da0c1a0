"""The scoreboard: every lecture's cell and answer give the recorded row, and a reader's rows replace recorded ones."""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
import pytest

from benchmarks.scoreboard import NOTES, STEPS, solved
from course_lib import style
from course_lib.benchmark import recorded
from course_lib.errors import CourseError
from course_lib.exercises import progress
from course_lib.teaching import scoreboard

ROOT = Path(__file__).resolve().parents[2]
LECTURES = sorted(STEPS | NOTES)
ROWS = {row["lecture"]: row for row in recorded("scoreboard_cpu").rows}


@pytest.fixture(autouse=True)
def no_rows_and_no_race(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(scoreboard, "speed", lambda engine: [2.0, 1.9, 2.1])


def kept(lecture: int) -> dict[str, object]:
    row: dict[str, object] = json.loads((progress.folder() / "scoreboard" / f"{lecture}.json").read_text())
    return row


@pytest.mark.parametrize("lecture", LECTURES)
def test_each_lecture_ends_with_a_cell_that_the_reader_completes(lecture: int) -> None:
    [path] = ROOT.glob(f"lectures/{lecture:02}_*.ipynb")
    cells = {cell["id"]: cell.source for cell in nbformat.read(path, as_version=4).cells}
    assert cells["scoreboard-step"].endswith(f"\nmine = ...\nscoreboard.after({lecture}, mine)")
    assert list(cells)[-5:] == ["scoreboard", "scoreboard-step", "scoreboard-hint", "summary", "sources"]
    assert "___" in cells["scoreboard-hint"]


@pytest.mark.parametrize("lecture", [2, 3, 4, 5, 6, 8, 9, 10])  # the others train, or measure time
def test_the_answer_gives_the_recorded_row(lecture: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if lecture != 3:  # 450 images take a second
        monkeypatch.setattr(scoreboard, "accuracy", lambda engine: ROWS[lecture]["accuracy"])
    drawn = scoreboard.after(lecture, solved(lecture))
    row, expected = kept(lecture), ROWS[lecture]
    exact = expected.keys() & {"kernels", "mb", "plan_mb", "accuracy", "value"}
    assert {key: row[key] for key in exact} == pytest.approx({key: expected[key] for key in exact}, rel=0.02)
    assert f"ecture {lecture}: " in style.alt_text(drawn)


def test_rows_that_are_missing_are_recorded_ones_and_say_so() -> None:
    device = recorded("scoreboard_cpu").device
    assert device in str(scoreboard.after(12).get_supxlabel())
    scoreboard.after(4, 0.5)
    faces = {bar.get_facecolor() for axes in scoreboard.after(6).axes for bar in axes.patches}
    assert faces == {(1.0, 1.0, 1.0, 1.0)}
    texts = [text.get_text() for text in scoreboard.after(8).axes[0].texts]
    assert any(text.startswith("● ") and "50%" in text for text in texts) and any(text.startswith("○ ") for text in texts)


def test_a_damaged_row_is_shown_as_recorded() -> None:
    scoreboard.after(4, 0.5)
    (progress.folder() / "scoreboard" / "4.json").write_text("{")
    assert "3%" in style.alt_text(scoreboard.after(4))


@pytest.mark.parametrize("lecture, result", [(4, "many"), (4, float("nan")), (4, True), (5, 0.5), (5, None), (9, [1])])
def test_another_kind_of_result_is_rejected_and_not_kept(lecture: int, result: object) -> None:
    with pytest.raises(CourseError, match=r"found .*: assign the"):
        scoreboard.after(lecture, result)
    assert not (progress.folder() / "scoreboard").exists()
