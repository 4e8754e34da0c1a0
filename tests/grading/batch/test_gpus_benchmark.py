"""benchmarks/gpus.py as far as it goes without a GPU: what it reads from signed verdicts, and its ratios."""

from __future__ import annotations

import json

import pytest

from benchmarks import gpus
from benchmarks.gpus import Timing
from course_lib.errors import CourseError
from course_lib.grading.batch.classroom import Classroom
from course_lib.grading.integrity import signature
from course_lib.grading.judge.verdict import Verdict
from tests.grading.conftest import LAB


def timing(device: str, began: float, ended: float, *disturbed: str) -> Timing:
    return Timing(device, began, ended, disturbed)


@pytest.mark.parametrize(
    ("found", "overlapping"),
    [
        ([("a", 0, 5), ("a", 5, 9), ("b", 0, 9), ("a", 9.5, 10)], 0),
        ([("a", 0, 5), ("a", 4.9, 9), ("b", 4, 9)], 1),
        ([("a", 0, 20), ("a", 1, 2), ("a", 3, 4), ("a", 20, 21)], 2),
        ([("a", 3, 4), ("a", 0, 1)], 0),
    ],
)
def test_measurements_that_overlap_on_one_device(found, overlapping):
    assert gpus.use_of_devices(timing(*one) for one in found)["overlapping"] == overlapping


def test_devices_with_their_measurements_and_what_disturbed_them():
    found = gpus.use_of_devices([timing("a", 0, 5, "hot"), timing("b", 1, 2.5), timing("a", 6, 7, "hot")])
    assert found["devices"] == {"a": {"measurements": 2, "seconds": 6.0}, "b": {"measurements": 1, "seconds": 1.5}}
    assert found["disturbed"] == ["hot"]


def test_what_the_verdicts_say_is_taken_only_as_it_was_signed(tmp_path):
    room = Classroom(tmp_path)
    room.folder.mkdir()
    key = signature.signing_key(room.folder)
    gpu = {"uuid": "GPU-7"}
    for student, device, began in (("ada", [gpu, gpu], 10.0), ("bob", [None, None], 20.0)):
        record = {"gpu": device, "began": began, "ended": began + 2, "disturbed": []}
        verdict = signature.signed({"provenance": {"device": "cpu", "health": [record]}}, key)
        path = room.folder / "reports" / student / f"{LAB.name}.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(verdict))
    assert gpus.timings(room) == [timing("GPU-7", 10, 12), timing("cpu", 20, 22)]
    path.write_text(path.read_text().replace("20.0", "99.0"))
    with pytest.raises(CourseError, match="altered after it was signed"):
        gpus.timings(room)


def test_ratios_over_one_gpu_of_the_same_run():
    found = [(0, 1, 2.0), (0, 4, 7.0), (1, 4, 6.0), (1, 1, 3.0), (2, 4, 6.0)]
    rows = [{"run": run, "gpus": count, "submissions_per_minute": rate} for run, count, rate in found]
    rows.insert(1, {"run": 0, "gpus": 2, "failed": "x"})
    assert [row.get("rate_over_one_gpu") for row in gpus.with_ratios(rows)] == [1.0, None, 3.5, 2.0, 1.0, None]


def test_why_points_are_missing_is_recorded(tmp_path):
    room = Classroom(tmp_path)
    outcomes = (
        LAB.outcome("profile", "full", "accepts all"),
        LAB.outcome("speed", "partial", "0.7x of the reference", share=0.5),
    )
    path = room.folder / "reports" / "ada" / f"{LAB.name}.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(Verdict(LAB.name, outcomes, "", {}).to_json()))
    assert gpus._lost(room, {"student": "ada"}) == {"speed": "0.7x of the reference"}
    assert gpus._lost(room, {"student": "bob"}) == {}


def test_no_two_submissions_are_equal(tmp_path):
    """A batch judges equal files once: with equal recipes, one submission would be judged for all."""
    room = gpus.Grader(None, trusted=True, ends=0)._room(tmp_path, 3)
    recipes = {path.read_text() for path in room.folder.rglob(gpus.RECIPE)}
    assert len(recipes) == 3
