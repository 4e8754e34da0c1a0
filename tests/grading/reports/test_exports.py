"""CSV files for nbgrader, Moodle and Canvas."""

from __future__ import annotations

import csv
import io
import os
import shutil
import subprocess
import sys
from datetime import timedelta

import pytest

from course_lib.errors import CourseError
from course_lib.grading.reports import exports
from course_lib.grading.reports.class_report import read
from course_lib.grading.reports.exports import export
from tests.grading.classes import new_room, put, verdict
from tests.grading.conftest import LAB, ROOT


@pytest.fixture(scope="module")
def room(tmp_path_factory):
    made = new_room(tmp_path_factory.mktemp("class"))
    put(made, "ada", verdict(), first_name="Ada", last_name="Lovelace", email="ada@example.org")
    put(made, "late", verdict(tiers=("full", "partial", "none")), late=timedelta(days=2), penalty=1.0, written=None)
    put(made, "=cmd()", verdict(), first_name="Zoë, of Ostend", last_name='"Q"', email="zoe@example.org")
    return made


def exported(room, form, target):
    export(form, LAB, room, read(LAB, room), target)
    return list(csv.reader(io.StringIO(target.read_text(encoding="utf-8"), newline="")))


def test_moodle(room, tmp_path):
    assert exported(room, "moodle", tmp_path / "grades.csv") == [
        ["First name", "Last name", "ID number", "Email address", LAB.title],
        ["Zoë, of Ostend", '"Q"', "'=cmd()", "zoe@example.org", "11"],
        ["Ada", "Lovelace", "ada", "ada@example.org", "11"],
        ["", "", "late", "", "3.5"],
    ]


def test_canvas(room, tmp_path):
    assert exported(room, "canvas", tmp_path / "grades.csv") == [
        ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", LAB.title],
        ["    Points Possible", "", "", "", "", "12"],
        ['"Q", Zoë, of Ostend', "", "'=cmd()", "'=cmd()", "", "11"],
        ["Lovelace, Ada", "", "ada", "ada", "", "11"],
        ["late", "", "late", "late", "", "3.5"],
    ]


@pytest.mark.parametrize("sign", ["=", "+", "-", "@"])
@pytest.mark.parametrize("before", ["", " ", "\t", "\r", "\n", "\u00a0", "\u3000"])
def test_no_cell_is_a_formula_for_any_spreadsheet(sign, before):
    assert exports._plain(f"{before}{sign}cmd|' /c calc'!A0") == f"'{before}{sign}cmd|' /c calc'!A0"


@pytest.mark.parametrize(
    "text", ["", "Ada", "O'Brien", "Zoë, of Ostend", "a=b", "x@example.org", " Ada", "\ufeffAda", "\u5b66\u751f", "1"]
)
def test_usual_cells_stay_as_they_are(text):
    assert exports._plain(text) == text


def test_files_of_a_class_are_not_committed_by_mistake():
    """As the guide names them."""
    names = ["students.csv", "grades.csv", "all.csv", "classroom/gradebook.db", "classroom-2027/x", "nbgrader_config_local.py"]
    done = subprocess.run(["git", "check-ignore", "--no-index", *names], cwd=ROOT, capture_output=True, text=True)
    if done.returncode == 128:
        pytest.skip("not a git repository")
    assert done.stdout.split() == names


def test_nbgrader_is_what_its_own_command_writes(room, tmp_path):
    """`nbgrader export` on the same gradebook, started as an instructor would."""
    shutil.copy(ROOT / "nbgrader_config.py", room.root)
    (room.root / "solutions").mkdir()
    theirs, ours = tmp_path / "theirs.csv", tmp_path / "ours.csv"
    command = [sys.executable, "-m", "nbgrader", "export", "--to", str(theirs)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=room.root, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    export("nbgrader", LAB, room, read(LAB, room), ours)
    assert ours.read_text() == theirs.read_text()
    assert "late_submission_penalty" in ours.read_text().splitlines()[0] and "4.5,1.0,3.5,12.0" in ours.read_text()


def test_an_unknown_format_and_a_missing_folder_are_clear_errors(room, tmp_path):
    report = read(LAB, room)
    with pytest.raises(CourseError, match="no CSV format 'excel': there are nbgrader, moodle, canvas"):
        export("excel", LAB, room, report, tmp_path / "x.csv")
    with pytest.raises(CourseError, match="no such folder"):
        export("nbgrader", LAB, room, report, tmp_path / "absent/x.csv")
