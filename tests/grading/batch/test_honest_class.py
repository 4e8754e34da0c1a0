"""A class whose files are right and whose notebooks and names are not: nobody loses a point, and nobody is forgotten."""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from nbgrader.api import Gradebook

from course_lib.benchmark import Comparison
from course_lib.grading.batch.classroom import Classroom
from course_lib.grading.judge.health import Device, Snapshot
from course_lib.grading.judge.judging import judge
from course_lib.grading.judge.review import Review
from course_lib.grading.reports import attention, class_report
from course_lib.labs import Examination
from tests.grading.conftest import LAB, ROOT, new_course

NOTEBOOK = f"{LAB.name}.ipynb"
ANSWER = "The kernels are tuned for the batch that the profile calls opt."


def solved() -> bytes:
    notebook = json.loads((ROOT / "labs" / LAB.name / NOTEBOOK).read_bytes())
    for cell in notebook["cells"]:
        if cell["metadata"].get("nbgrader", {}).get("grade_id") == "written":
            cell["source"] = ANSWER
    return json.dumps(notebook).encode()


@pytest.fixture
def room(tmp_path, monkeypatch) -> Classroom:
    """A classroom whose examination gives all points for files with the content "right"."""

    def examine(lab, folder, examiner, only=None):
        right = all((folder / name).is_file() and (folder / name).read_bytes() == b"right" for name in LAB.artifacts)
        return Examination(tuple(LAB.outcome(task.id, "full" if right else "none", "judged") for task in LAB.tasks))

    monkeypatch.setattr(type(LAB), "examine", examine)
    return Classroom(new_course(tmp_path), trusted=True, limits={"run": False})


def put(room: Classroom, path: str, content: bytes = b"right") -> Path:
    target = room.folder / "submitted" / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    return target


def put_files(room: Classroom, folder: str) -> None:
    for name in LAB.artifacts:
        put(room, f"{folder}/{name}")


def test_right_files_have_all_points_and_each_answer_is_read_by_a_person(room):
    full = f"{LAB.name}"
    put_files(room, f"renamed/{full}")
    put(room, f"renamed/{full}/{LAB.name} (1).ipynb", solved())
    put_files(room, f"truncated/{full}")
    put(room, f"truncated/{full}/{NOTEBOOK}", solved()[:-1500])
    put_files(room, f"without/{full}")
    put_files(room, "flat")
    put(room, f"flat/doe_1_2_{NOTEBOOK}", solved())
    put_files(room, "short/Lab 01")
    put(room, f"short/Lab 01/{NOTEBOOK}", solved())
    place = put(room, f"packed/{full}/x.zip", b"").parent
    with zipfile.ZipFile(place / "x.zip", "w") as packed:
        for name, content in ((NOTEBOOK, solved()), ("Model.ONNX", b"right"), ("recipe.toml", b"right")):
            packed.writestr(f"mine/{name}", content)
    put(room, "loose.ipynb", solved())

    grades = {grade.student: grade for grade in room.grade(LAB, room.students(LAB))}
    points = {name: (grade.score, grade.review.points.open) for name, grade in grades.items()}
    assert points == dict.fromkeys(["flat", "packed", "renamed", "short", "truncated", "without"], (10, 2))
    assert grades["renamed"].notes == (f"'{LAB.name} (1).ipynb' was taken as {NOTEBOOK}",)
    assert "'x.zip unpacked/mine/Model.ONNX' was taken as model.onnx" in grades["packed"].notes
    assert grades["short"].notes == (f"the folder 'Lab 01' was taken as {LAB.name}",)
    assert {name for name, grade in grades.items() if grade.error} == {"truncated", "without"}
    assert grades["without"].error.startswith("the notebook could not be read (there is no notebook)")
    for name in points:
        page = (room.folder / "autograded" / name / LAB.name / NOTEBOOK).read_text()
        assert ANSWER in page or "The answer to this question was not found" in page, name
    report = class_report.read(LAB, room)
    assert {need.who for need in attention.noted(report)} >= {("renamed",), ("packed",), ("flat",)}
    assert [need.who for need in attention.not_graded(report)] == [("'loose.ipynb'",)]


def test_what_was_handed_in_is_judged_and_the_verdict_names_it(room):
    """A wrong file had full points if the notebook was right."""
    room = replace(room, limits={})
    folder = f"ada/{LAB.name}"
    put(room, f"{folder}/recipe.toml", b"wrong")
    put(room, f"{folder}/model.onnx")
    writes = {"cell_type": "code", "source": "open('recipe.toml', 'w').write('right')", "metadata": {}}
    put(room, f"{folder}/{NOTEBOOK}", json.dumps({"cells": [writes]}).encode())
    (grade,) = room.grade(LAB, ["ada"])
    verdict = room.verdict(LAB, "ada")
    assert grade.score == 0
    assert grade.notes == ("the notebook now writes another recipe.toml: the submitted file was judged",)
    assert verdict.provenance["sha256"]["recipe.toml"].startswith(
        "8810ad581e59f2bc3928b261707a71308f7e139eb04820366dc4d5c18d980225"
    )
    (room.folder / "submitted" / folder / "recipe.toml").unlink()
    (grade,) = room.grade(LAB, ["ada"])
    assert grade.score == 10
    assert grade.notes == ("recipe.toml was not submitted: the file that the notebook wrote was judged",)


def test_an_id_that_is_not_on_the_class_list_is_named(room):
    put_files(room, f"ada.lovelace/{LAB.name}")
    put_files(room, f"Ada.Lovelace2/{LAB.name}")
    put_files(room, f"guest/{LAB.name}")
    room.grade(LAB, room.students(LAB))
    assert class_report.read(LAB, room).unlisted == {}, "there is no list"
    with Gradebook(f"sqlite:///{room.folder / 'gradebook.db'}") as book:
        book.update_or_create_student("ada.lovelace", first_name="Ada", last_name="Lovelace")
    needs = attention.to_review(class_report.read(LAB, room))
    assert [(need.who, need.why) for need in needs if "class list" in need.why] == [
        (("Ada.Lovelace2",), "this id is not on the class list: did you mean 'ada.lovelace'?"),
        (("guest",), "this id is not on the class list"),
    ]


def test_a_measurement_that_stays_disturbed_does_not_count(tmp_path, monkeypatch):
    """After three tries the last one was returned, and nothing read that it was disturbed."""
    waited = iter(range(0, 1000, 10))

    def busy() -> Snapshot:
        return Snapshot(0.0, 0.0, next(waited), 0.0, None, None)

    def examine(lab, folder, examiner, only=None):
        examiner.measured(lambda: Comparison("eager", {}, {}, 1.0, "precise"))
        return Examination(tuple(LAB.outcome(task.id, "full", "1.2x of the reference") for task in LAB.tasks))

    monkeypatch.setattr(type(LAB), "examine", examine)
    for name in LAB.artifacts:
        (tmp_path / name).write_text("any")
    verdict = judge(LAB, tmp_path, trusted=True, device=Device("test-disturbed", snapshot=busy))
    assert {outcome.task.id: outcome.tier for outcome in verdict.outcomes} == {
        "profile": "full",
        "accuracy": "full",
        "speed": "inconclusive",
    }
    review = Review.of(LAB, verdict)
    assert (review.points.earned, review.points.open) == (6, 4)
    (reason,) = review.reasons
    assert "The measurement was disturbed: the judge waited for a processor" in reason.text
    assert reason.text.endswith("Grade again on a quiet machine. Measured: 1.2x of the reference")
