"""Grading again: only what is new, with what changed since, and on the data of an earlier verdict."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from course_lib.cli import console
from course_lib.grading.batch.archive import Selection
from course_lib.grading.batch.classroom import Classroom
from course_lib.grading.batch.submission import Result
from course_lib.grading.judge import judging
from course_lib.grading.judge.verdict import Verdict, verdict_file
from course_lib.grading.reports import class_page, report
from course_lib.grading.reports.class_report import read
from course_lib.labs import Examination, Examiner
from tests.grading.classes import faulty, new_room, verdict
from tests.grading.conftest import LAB
from tests.labs.framework.toy_lab import lab as toy_lab


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Classroom:
    monkeypatch.setattr(Classroom, "_write_feedback", lambda *_: "")  # there are no notebooks
    (tmp_path / "nbgrader_config.py").touch()
    return new_room(tmp_path)


def _submit(room: Classroom, student: str, text: str = "precision = 'fp32'") -> None:
    folder = room.folder / "submitted" / student / LAB.name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "recipe.toml").write_text(text)


def _record(room: Classroom, student: str, found: dict, tmp_path: Path, began: str = "9999", **provenance: object) -> None:
    """What a process found, recorded as the classroom does it in a batch that began then."""
    digest = room._submitted(LAB, student)[1]
    document = {**found, "provenance": {**found["provenance"], **provenance}}
    room._record(LAB, Result(LAB.name, student, digest, Selection(tmp_path / "nothing", ()), document), began)
    graded = room.folder / "autograded" / student / LAB.name / f"{LAB.name}.ipynb"
    graded.parent.mkdir(parents=True, exist_ok=True)
    graded.touch()


def test_new_submissions_are_those_that_were_not_judged_or_changed(room, tmp_path):
    for student in ("ada", "ben", "cay", "dan"):
        _submit(room, student)
    _record(room, "ada", verdict(), tmp_path)
    _record(room, "ben", verdict(), tmp_path)
    _record(room, "cay", faulty(), tmp_path)
    everyone = room.students(LAB)
    assert room.new(LAB, everyone) == ["cay", "dan"]
    _submit(room, "ben", "precision = 'fp16'")
    assert room.new(LAB, everyone) == ["ben", "cay", "dan"]
    (room.folder / "autograded" / "ada" / LAB.name / f"{LAB.name}.ipynb").unlink()  # formgrader's Autograde was ended
    assert room.new(LAB, everyone) == everyone
    _record(room, "ada", verdict(), tmp_path)
    verdict_file(room.folder, "ada", LAB).write_text("{")
    assert room.new(LAB, everyone) == everyone


def test_points_that_changed_are_listed(room, tmp_path, capsys):
    for student in ("ada", "ben"):
        _submit(room, student)
        _record(room, student, verdict(), tmp_path, date="2026-05-01", seed=1, commit="abc")
    assert not room._grade(LAB, "ada", "").changed
    _record(room, "ada", verdict(tiers=("full", "full", "partial")), tmp_path, date="2026-05-02", seed=2)
    _record(room, "ben", verdict(), tmp_path, date="2026-05-02", seed=2)
    grade = room._grade(LAB, "ada", "")
    assert grade.changed == {"speed": (4, 2)} and not room._grade(LAB, "ben", "").changed
    assert room.verdict(LAB, "ada").provenance["previous"]["commit"] == "abc"
    console.grades(LAB, [grade])
    assert "points changed since the last grading: ada: speed 4 to 2" in capsys.readouterr().out
    assert "Points changed since the last grading" in class_page.page(read(LAB, room))
    _record(room, "ada", verdict(tiers=("full", "full", "partial")), tmp_path, date="2026-05-03", seed=3)
    assert not room._grade(LAB, "ada", "").changed, "since the last grading, not since the first one"


def test_a_batch_that_was_interrupted_while_it_recorded_still_knows_the_points_before_it(room, tmp_path):
    _submit(room, "ada")
    _record(room, "ada", verdict(), tmp_path, date="2026-05-01T10:00:00")
    for time in ("09:01", "09:02"):  # recorded, interrupted before the mark, and graded again
        partial = verdict(tiers=("full", "full", "partial"))
        _record(room, "ada", partial, tmp_path, began="2026-05-02T09:00:00", date=f"2026-05-02T{time}:00")
    assert room._grade(LAB, "ada", "").changed == {"speed": (4, 2)}


def test_the_command_grades_new_ones_only(room, course, tmp_path, monkeypatch):
    asked: list[list[str]] = []
    monkeypatch.setenv("COURSE_ROOT", str(room.root))
    monkeypatch.setattr("course_lib.cli.commands.grading.instructors_root", lambda _: room.root)
    monkeypatch.setattr(Classroom, "grade", lambda self, lab, students, **_: asked.append(students) or [])
    for student in ("ada", "ben"):
        _submit(room, student)
    _record(room, "ada", verdict(), tmp_path)
    assert course("grade", "lab01", "--new").status == 0
    _record(room, "ben", verdict(), tmp_path)
    done = course("grade", "lab01", "--new")
    assert done.status == 0 and asked == [["ben"]] and "0 of 2 submissions are new" in done.out


def test_an_appeal_is_graded_on_the_data_of_the_verdict(room, course, tmp_path, monkeypatch):
    graded: list[tuple[list[str], object]] = []
    monkeypatch.setattr("course_lib.cli.commands.grading.instructors_root", lambda _: room.root)
    monkeypatch.setattr(Classroom, "grade", lambda self, lab, students, **_: graded.append((students, self.examiner)) or [])
    for student in ("ada", "ben"):
        _submit(room, student)
    _record(room, "ada", verdict(), tmp_path, seed=1234)
    path = verdict_file(room.folder, "ada", LAB)
    assert course("grade", "lab01", "--seed-of", str(path)).status == 0
    assert graded == [(["ada"], {"seed": 1234})]
    document = json.loads(path.read_text())
    del document["provenance"]["seed"]
    path.write_text(json.dumps(document))
    other = tmp_path / "x.json"
    other.write_text("[]")
    for lab, file, words in (
        ("lab01", path, "has no seed: expected the JSON next to a report"),
        ("lab01", other, "is not a verdict"),
        ("lab09", path, "is a verdict on lab01_first_engine, expected one on lab09_runtime"),
    ):
        done = course("grade", lab, "--seed-of", file)
        assert done.status == 1 and words in done.err


@pytest.mark.parametrize("seed", [7, 0, None])
def test_the_judge_keeps_a_given_seed_and_draws_one_otherwise(tmp_path, monkeypatch, seed):
    seen: list[int] = []

    def examine(folder, examiner, only=None):
        seen.append(examiner.seed)
        return Examination((toy_lab.outcome("answer", "full", ""),))

    monkeypatch.setattr(toy_lab, "examine", examine)
    (tmp_path / "answer.txt").write_text("42")
    provenance = judging.judge(toy_lab, tmp_path, examiner=Examiner(seed=seed), trusted=True).provenance
    assert provenance["seed"] == seen[0] and (seed in (None, seen[0]))


def test_the_commit_is_in_the_provenance(tmp_path, monkeypatch):
    (tmp_path / "answer.txt").write_text("42")
    monkeypatch.setattr(judging, "course_commit", lambda: "0123456789abcdef-dirty")
    assert judging.judge(toy_lab, tmp_path, trusted=True).provenance["commit"] == "0123456789abcdef-dirty"
    found = Verdict.from_json({**verdict(), "provenance": {**verdict()["provenance"], "commit": "0123456789abcdef-dirty"}})
    assert "(0123456789ab-dirty)" in report.page(LAB, found, "ada")


def test_a_course_without_a_repository_has_no_commit(tmp_path, monkeypatch):
    """Also where the course lies inside another repository."""
    monkeypatch.setattr(judging.course_lib, "__file__", str(tmp_path / "course_lib" / "__init__.py"))
    assert judging.course_commit.__wrapped__() == ""
