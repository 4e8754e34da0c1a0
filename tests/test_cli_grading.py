"""`course grade` and `course verify`: what an instructor may get wrong is one line."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from course_lib import labs
from course_lib.grading import signature
from tests.test_cli import COURSE, Course, _is_one_line, course

__all__ = ["course"]  # the fixture


@pytest.fixture
def verdict(tmp_path: Path) -> Path:
    """A small verdict in a classroom whose key has signed it."""
    points = {"profile": 3.0, "accuracy": 0.0, "speed": 0.0}
    rows = [(asdict(task), points[task.id]) for task in labs.find("lab01").tasks]
    tasks = [{"task": task, "tier": "full" if won else "none", "points": won, "message": "", "hint": ""} for task, won in rows]
    known = {"lab": "lab01_first_engine", "score": 3.0, "max_score": 10, "fault": "", "tasks": tasks, "comparison": None}
    path = tmp_path / "classroom/reports/ada/lab01_first_engine.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(signature.signed(known, signature.signing_key(tmp_path / "classroom"))))
    return path


def test_a_verdict_that_holds(course: Course, verdict: Path) -> None:
    done = course("verify", verdict)
    assert done.status == 0 and "signed by this classroom, and follows from its record" in done.out
    (verdict.parents[2] / signature.KEY_FILE).rename(verdict.parents[2] / "elsewhere")
    assert "signed by the key it names" in course("verify", verdict).out
    assert course("verify", verdict, "--json").document()["contradictions"] == []


def test_an_altered_verdict(course: Course, verdict: Path) -> None:
    verdict.write_text(verdict.read_text().replace("3.0", "2.0"))
    done = course("verify", verdict)
    assert (done.status, done.out) == (1, "the verdict was altered after it was signed\n")
    found = course("verify", verdict, "--json")
    assert found.status == 1 and json.loads(found.out)["contradictions"] == ["the verdict was altered after it was signed"]


def test_another_classroom(course: Course, verdict: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    signature.signing_key(tmp_path / "other")
    done = course("verify", verdict, "--classroom", tmp_path / "other")
    assert (done.status, done.out) == (1, "the verdict was signed with another key than this classroom's\n")


def test_what_is_no_verdict(course: Course, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text("<html>")
    _is_one_line(course("verify", path), ("report.json is no verdict", "course grade"))
    _is_one_line(course("verify", tmp_path / "absent.json"), ("absent.json", "No such file"))
    path.write_text("{}")
    assert course("verify", path).out == "the verdict carries no signature\n"
    path.write_text("[1]")
    _is_one_line(course("verify", path), ("report.json is no verdict",))


def test_two_ways_at_once(course: Course, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    room = tmp_path / "classroom/submitted/ada/lab01_first_engine"
    room.mkdir(parents=True)
    for name in ("labs", "nbgrader_config.py"):
        (tmp_path / name).symlink_to(COURSE / name)
    monkeypatch.setenv("COURSE_ROOT", str(tmp_path))
    _is_one_line(course("grade", "lab01", "--workers", 2, "--scheduler", "tcp://x:1"), ("give one of the two",), status=2)
    _is_one_line(course("grade", "lab01", "--workers", 0), ("workers",), status=2)
