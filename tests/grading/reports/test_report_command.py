"""`course report`, as an instructor types it."""

from __future__ import annotations

import pytest

from tests.cli.command import is_one_line
from tests.grading.classes import faulty, new_room, put, verdict
from tests.grading.conftest import LAB


@pytest.fixture(autouse=True)
def room(tmp_path, monkeypatch):
    """A classroom of two."""
    room = new_room(tmp_path)
    put(room, "ada", verdict(), written=None)
    put(room, "ben [bold]", faulty())
    (tmp_path / "nbgrader_config.py").touch()
    monkeypatch.setenv("COURSE_ROOT", str(tmp_path))


def test_tables_and_files(course, tmp_path):
    done = course("report", "lab01", "--csv", tmp_path / "grades.csv", "--format", "canvas", "--leaderboard", "--anonymous")
    assert (done.status, done.err) == (0, "")
    for words in ("ben [bold]", "the examiner failed", "the written question has no points yet", "published as"):
        assert words in done.out
    assert "points of 10" in done.out and done.out.count("points of written answers are not published") == 1
    for path in (f"reports/{LAB.name}.html", f"reports/{LAB.name}.leaderboard.html", "signing-key.pem"):
        assert (tmp_path / "classroom" / path).is_file()
    assert (tmp_path / "grades.csv").read_text().startswith("Student,ID,SIS User ID")


def test_json_is_one_document(course):
    done = course("report", "lab01", "--json")
    document = done.document()
    assert done.status == 0 and [one["student"] for one in document["submissions"]] == ["ada", "ben [bold]"]
    review = document["submissions"][0]["review"]
    assert review["points"] == {"earned": 10, "open": 2, "lost": 0, "maximum": 12}
    assert [reason["cells"] for reason in review["reasons"]] == [["written"]]
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
    is_one_line(course("report", *arguments), (words,))
