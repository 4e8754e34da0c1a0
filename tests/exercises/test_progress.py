"""What is solved is remembered, and both tables show it."""

import json
import re
from pathlib import Path

import pytest

from course_lib import labs
from course_lib.cli import app
from course_lib.cli.progress import progress_of, show_progress
from course_lib.exercises import lecture_numbers, of_lecture, progress


@pytest.fixture(autouse=True)
def state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


def test_each_course_folder_of_a_user_has_its_own_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two copies of the course in one home shared one progress."""
    spring, autumn = tmp_path / "spring" / "course", tmp_path / "autumn" / "course"
    for root in (spring, autumn):
        (root / "labs").mkdir(parents=True)
        (root / "lectures").mkdir()
        (root / "nbgrader_config.py").touch()
    monkeypatch.delenv("COURSE_ROOT", raising=False)
    monkeypatch.chdir(spring / "lectures")
    progress.record("15.1")
    assert progress.done() == progress.done(spring) == {"15.1"} and progress.done(autumn) == set()
    monkeypatch.chdir(autumn)
    assert progress.done() == set()
    assert progress_of().lectures[14].done == 0
    (tmp_path / "link").symlink_to(spring)
    assert progress.done(tmp_path / "link") == {"15.1"}


def test_the_rows(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for solved in ("15.1", "15.1"):
        progress.record(solved)
    assert progress.done() == {"15.1"} and progress.folder().parent == state / "tensorrt-course" / "exercises"
    found = progress_of()
    assert len(found.lectures) == len(lecture_numbers())
    assert [row.page.split("/")[1] for row in found.labs] == list(labs.names())
    row = found.lectures[14]
    assert (row.title, row.done, row.count) == ("Lecture 15: Transformers that generate", 1, len(of_lecture(15)))
    assert row.minutes == 90 + sum(exercise.minutes for exercise in of_lecture(15)), "reading and exercises"
    assert all((row.points, row.minutes >= 60) == (12, True) for row in found.labs), "as the notebooks say"
    show_progress()  # as the start page does
    said = capsys.readouterr().out
    solved = rf"^ *Lecture 15: Transformers that generate +1 of {len(of_lecture(15))} "
    assert re.search(solved, said, re.MULTILINE) and "Lab 01: your first engine" in said
    page = found._repr_html_()  # in a notebook
    assert page.startswith('<p><b>Next: <a href="../lectures/01_why_an_inference_optimizer.ipynb">Lecture 1: ')
    assert 'href="../labs/lab16_your_network/lab16_your_network.ipynb"' in page and "width:100%" not in page
    assert f"width:{100 / len(of_lecture(15)):.0f}%;background:#009E73" in page
    folder = state / "labs" / "lab01_first_engine"
    folder.mkdir(parents=True)
    (folder / "model.onnx").touch()
    (folder / "recipe.toml").touch()
    before, lab = found.labs[0], progress_of(state).labs[0]
    assert (lab.done, lab.count) == (2, 2) and before.minutes, "files alone are not a lab that is done"


QUESTION = {"grade": True, "solution": True}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("metadata", None),
        ("metadata", []),
        ("metadata", {"nbgrader": None}),
        ("metadata", {"nbgrader": [1]}),
        ("metadata", {"nbgrader": {**QUESTION, "points": None}}),
        ("metadata", {"nbgrader": {**QUESTION, "points": "2"}}),
        ("source", None),
        ("source", [3]),
    ],
)
def test_a_damaged_cell_is_no_error(field: str, value: object, tmp_path: Path) -> None:
    """It ended `course check` after the examination, `course progress` and the start page."""
    for path, source in (("labs/lab01_first_engine/lab01_first_engine", "No minutes"), ("lectures/15_empty", "")):
        notebook = tmp_path / f"{path}.ipynb"
        notebook.parent.mkdir(parents=True)
        notebook.write_text(json.dumps({"cells": [{"source": source}, {field: value}]}))
    found = progress_of(tmp_path)
    assert (found.labs[0].points, found.labs[0].minutes) == (10, 0)
    assert found.lectures[14].title == "Lecture 15"


def test_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["progress"], ["progress", "--json"]):
        monkeypatch.setattr("sys.argv", ["course", *arguments])
        with pytest.raises(SystemExit) as left:
            app.main()
        assert not left.value.code
        said = capsys.readouterr().out
        if "--json" in arguments:
            assert json.loads(said) == json.loads(json.dumps(progress_of().to_json()))
        else:
            assert "all lectures" in said and said.endswith(f"next: {progress_of().next_step}\n")
