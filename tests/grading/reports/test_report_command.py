"""`course report`, as an instructor types it."""

from __future__ import annotations

import json
import sys

import pytest

from course_lib.cli import app
from tests.grading.classes import faulty, new_room, put, verdict
from tests.grading.conftest import LAB


@pytest.fixture
def course(tmp_path, monkeypatch, capfd):
    """A classroom of two, and a function that runs the command there: status, standard output and error."""
    room = new_room(tmp_path)
    put(room, "ada", verdict(), written=None)
    put(room, "ben [bold]", faulty())
    (tmp_path / "nbgrader_config.py").touch()
    monkeypatch.setenv("COURSE_ROOT", str(tmp_path))

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["course", "report", *arguments])
        capfd.readouterr()
        with pytest.raises(SystemExit) as left:
            app.main()
        return (left.value.code or 0, *capfd.readouterr())

    return run


def test_tables_and_files(course, tmp_path):
    status, out, err = course(
        "lab01", "--csv", str(tmp_path / "grades.csv"), "--format", "canvas", "--leaderboard", "--anonymous"
    )
    assert (status, err) == (0, "")
    assert (
        "ben [bold]" in out
        and "the examiner failed" in out
        and "the written question has no points yet" in out
        and "published as" in out
    )
    for path in (f"reports/{LAB.name}.html", f"reports/{LAB.name}.leaderboard.html", "signing-key.pem"):
        assert (tmp_path / "classroom" / path).is_file()
    assert (tmp_path / "grades.csv").read_text().startswith("Student,ID,SIS User ID")


def test_json_is_one_document(course):
    status, out, err = course("lab01", "--json")
    document = json.loads(out)
    assert (status, err) == (0, "") and [one["student"] for one in document["submissions"]] == ["ada", "ben [bold]"]
    assert document["leaderboard"] == [] and document["files"][0].endswith(f"{LAB.name}.html")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("lab02",), "nothing of lab02_fusion was graded"),
        (("lab01", "--classroom", "elsewhere"), "elsewhere: `course grade lab01_first_engine` comes first"),
        (("lab01", "--csv", "x.csv", "--format", "excel"), "no CSV format 'excel'"),
    ],
)
def test_errors_are_one_line(course, arguments, words):
    status, out, err = course(*arguments)
    assert status == 1 and out == "" and words in err and len(err.splitlines()) == 1
