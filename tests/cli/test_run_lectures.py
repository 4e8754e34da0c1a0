"""`make test` of the learner's bundle: lectures run in a copy of their folder, and a failure is one line."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from course_lib.cli import run_lectures
from course_lib.errors import CourseError


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A course of two lectures: one writes a file and reads another beside it, and one raises."""
    lectures = {
        "00_good": "from pathlib import Path; Path('mine.txt').write_text(Path('given.txt').read_text())",
        "01_bad": "raise ValueError('a first line\\na second one')",
    }
    folder = tmp_path / "lectures"
    folder.mkdir()
    (tmp_path / "labs").mkdir()
    (folder / "given.txt").write_text("given")
    for name, source in lectures.items():
        nbformat.write(new_notebook(cells=[new_code_cell(source)]), folder / f"{name}.ipynb")
    monkeypatch.setattr(run_lectures, "course_folder", lambda: tmp_path)
    return tmp_path


def test_the_summary_counts_and_the_reason_is_one_line(course: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_lectures.main(["all"]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("00_good: passed in") and said[1].startswith("01_bad: FAILED in")
    assert said[2].strip() == "ValueError: a first line"
    assert said[3].startswith("==== 1 failed, 1 passed in")
    assert not (course / "lectures" / "mine.txt").exists(), "a lecture writes into a copy"


def test_one_lecture_by_its_number(course: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_lectures.main(["00"]) == 0 and "==== 0 failed, 1 passed" in capsys.readouterr().out


@pytest.mark.parametrize("numbers", [["77"], [], ["00", "x"]])
def test_an_unknown_lecture_is_one_line(course: Path, numbers: list[str]) -> None:
    with pytest.raises(CourseError, match="expected lectures from 00, 01, or all; found"):
        run_lectures.main(numbers)
