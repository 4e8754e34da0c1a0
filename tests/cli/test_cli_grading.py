"""`course grade` and `course verify`: what an instructor may get wrong is one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from course_lib.grading.integrity import signature
from tests.cli.command import Course, is_one_line
from tests.grading.classes import faulty, new_room, put
from tests.grading.classes import verdict as verdict_of_a_class


@pytest.fixture
def verdict(tmp_path: Path) -> Path:
    """A verdict with 3 points in a classroom whose key has signed it."""
    known = verdict_of_a_class(tiers=("full", "none", "none"), speedup=0)
    path = tmp_path / "classroom/reports/ada/lab01_first_engine.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(signature.signed(known, signature.signing_key(tmp_path / "classroom"))))
    return path


def test_a_verdict_that_holds(course: Course, verdict: Path) -> None:
    done = course("verify", verdict)
    assert done.status == 0 and "signed by this classroom, and follows from its record" in done.out
    assert str(verdict.parents[2]) in done.out, "it says whose key"
    assert course("verify", verdict, "--json").document()["contradictions"] == []


def test_it_says_whose_verdict_it_is(course: Course, verdict: Path, tmp_path: Path) -> None:
    """A copy outside of the classroom could be shown as one's own, or an older one after it was graded again."""
    known = json.loads(verdict.read_text())
    del known["signature"]
    room, key = verdict.parents[2], signature.signing_key(verdict.parents[2])
    verdict.write_text(json.dumps(signature.signed({**known, "student": "ada"}, key)))
    copied = tmp_path / "mallory.json"
    copied.write_bytes(verdict.read_bytes())
    done = course("verify", copied, "--classroom", room)
    assert done.status == 0 and "ada, lab01_first_engine, 3 of the 10 points of its tasks" in done.out
    worse = [{**task, "tier": "none", "points": 0.0} for task in known["tasks"]]
    verdict.write_text(json.dumps(signature.signed({**known, "student": "ada", "score": 0.0, "tasks": worse}, key)))
    done = course("verify", copied, "--classroom", room)
    assert done.status == 1 and "the classroom has another verdict of 'ada' for this lab" in done.out


def _forged(verdict: Path, folder: Path) -> Path:
    """The verdict with full points, signed with the forger's key."""
    folder.mkdir(parents=True, exist_ok=True)
    known = json.loads(verdict.read_text())
    for row in known["tasks"]:
        row |= {"tier": "full", "points": row["task"]["points"]}
    known["score"] = known["max_score"]
    del known["signature"]
    path = folder / verdict.name
    path.write_text(json.dumps(signature.signed(known, signature.signing_key(folder))))
    return path


def test_a_forged_verdict_fails_without_a_key(course: Course, verdict: Path, tmp_path: Path) -> None:
    """Signed with another key, and no classroom's key to compare with: it once had status 0."""
    forged = _forged(verdict, tmp_path / "elsewhere")
    done = course("verify", forged)
    assert done.status == 1 and "no key was compared" in done.out and "--classroom" in done.out
    found = course("verify", forged, "--json")
    assert (found.status, json.loads(found.out)["key"]) == (1, None)
    assert course("verify", forged, "--classroom", verdict.parents[2]).out.startswith("the verdict was signed with another key")
    empty = course("verify", forged, "--classroom", tmp_path / "absent")
    assert empty.status == 1 and "no key was compared" in empty.out
    assert not (tmp_path / "absent").exists(), "no key is made by looking for one"


def test_a_classroom_that_lost_its_key(course: Course, verdict: Path) -> None:
    (verdict.parents[2] / signature.KEY_FILE).rename(verdict.parents[2] / "kept")
    assert course("verify", verdict).status == 1


def test_an_altered_verdict(course: Course, verdict: Path) -> None:
    verdict.write_text(verdict.read_text().replace("3.0", "2.0"))
    done = course("verify", verdict)
    assert (done.status, done.out) == (1, "the verdict was altered after it was signed\n")
    found = course("verify", verdict, "--json")
    assert found.status == 1 and json.loads(found.out)["contradictions"] == ["the verdict was altered after it was signed"]


def test_what_is_no_verdict(course: Course, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text("<html>")
    is_one_line(course("verify", path), ("report.json is not a verdict", "course grade"))
    is_one_line(course("verify", tmp_path / "absent.json"), ("absent.json", "No such file"))
    path.write_text("{}")
    assert course("verify", path).out.startswith("the verdict carries no signature\n")
    path.write_text("[1]")
    is_one_line(course("verify", path), ("report.json is not a verdict",))


@pytest.mark.parametrize(("document", "status"), [(verdict_of_a_class, 0), (faulty, 1)])
def test_the_status_tells_a_script_that_the_examiner_failed(course, document, status, tmp_path, monkeypatch) -> None:
    """Whatever the cause, the submission has to be graded again."""
    room = new_room(tmp_path)
    put(room, "ada", document())
    (room.folder / "submitted/ada/lab01_first_engine").mkdir(parents=True)
    monkeypatch.setattr(
        "course_lib.grading.batch.classroom.Classroom.grade", lambda room, lab, students, **_: [room._grade(lab, "ada", "")]
    )
    done = course("grade", "lab01", "--classroom", room.folder)
    assert done.status == status and ("the examiner failed" in done.out) == bool(status)
