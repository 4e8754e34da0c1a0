"""A check names the symptom first. What the task asks the learner to find follows on the second failure, and in a report at once."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from course_lib.errors import EngineError
from course_lib.exercises import Case
from course_lib.labs import Examiner, Lab, Task
from course_lib.labs.framework.criteria import HALF, Outcome, equals, holds
from course_lib.labs.framework.runner import Failed, case_criterion
from course_lib.labs.requirements import rows
from tests.cli.command import Course, course

__all__ = ["course"]  # the fixture
CHECK_AGAIN = "Check again to see what was expected."


def _opt(work):
    yield holds("there is a profile", True, HALF)
    yield equals("opt", int((work.folder / "opt").read_text()), 7, bound="the most frequent batch", hint="Count the batches.")


def _limit(work):
    yield equals("opt", 8, 7, bound="the most frequent batch")
    if (work.folder / "broken").exists():
        raise EngineError("the engine cannot be run")
    yield equals("profiles", 2, 1)


class Profiled(Lab):
    name = "lab42_profiled"
    title = "Lab 42: a profile"
    artifacts: ClassVar = {"opt": 100}
    tasks = (Task("opt", "The batch", 2, _opt), Task("limit", "Limits", 2, _limit))

    def write_reference(self, folder: Path, *, opset: int | None = None) -> None:
        (folder / "opt").write_text("7")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "opt").write_text("8")
    return tmp_path / "work"


def test_what_was_expected_is_shown_from_the_second_failure_of_a_task_on(folder: Path) -> None:
    lab = Profiled()
    first, second = (lab.check("opt", folder) for _ in range(2))
    assert "opt is 8, all points need the most frequent batch." in first.message and first.message.endswith(CHECK_AGAIN)
    assert not any("7" in shown for shown in (first.message, first.hint, *map(str, first.criteria)))
    assert (
        (first.hint, first.tier, first.points)
        == (second.hint, second.tier, second.points)
        == ("Count the batches.", "partial", 1)
    )
    assert "Expected: 7." in second.message and CHECK_AGAIN not in second.message
    assert rows(second.criteria)[1] == ("opt", "8 (expected 7)", "", "\u2717 the most frequent batch")
    assert lab.check("limit", folder).message.endswith(CHECK_AGAIN), "each task has its own first failure"
    (folder.parent / "another").mkdir()
    (folder.parent / "another" / "opt").write_text("8")
    assert lab.check("opt", folder.parent / "another").message == first.message, "and so has each folder"
    (folder / "opt").write_text("7")
    assert lab.check("opt", folder).message == "There is a profile; opt: 7."


def test_an_examination_has_what_was_expected_and_a_limit_is_never_withheld(folder: Path) -> None:
    of_opt, of_limit = Profiled().examine(folder, Examiner()).outcomes
    assert "Expected: 7." in of_opt.message and "profiles is 2, all points need 1" in of_limit.message
    assert Outcome.from_json(of_opt.to_json()).criteria == of_opt.criteria, "a report reads it back"
    (folder / "broken").touch()
    assert Profiled().check("limit", folder).message == "the engine cannot be run", "an error is complete at once"
    assert Profiled().check("limit", folder).message == "the engine cannot be run"


def test_where_nothing_can_be_kept_all_is_shown(folder: Path) -> None:
    (folder.parent / "state").write_text("not a folder")
    assert "Expected: 7." in Profiled().check("opt", folder).message


def test_the_command_counts_the_same_failures(course: Course, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from course_lib import labs

    monkeypatch.setattr(labs, "find", lambda name: Profiled())
    checked = [course("check", "lab42", folder, "--task", "opt").out for _ in range(2)]
    assert CHECK_AGAIN in checked[0] and "expected 7" not in checked[0]
    assert "expected 7" in checked[1]
    assert "Expected: 7." in Profiled().check("opt", folder).message, "a notebook knows of the command's failure"


@pytest.mark.parametrize(
    ("results", "of_function", "expected"),
    [
        ([3, 5], True, "4 for two; 6 for three"),
        ([4, 5], True, "6 for three"),
        ([Failed("not written yet", empty=True), 5], True, "6 for three"),
        ([3, 5], False, ""),
        ([4, 6], True, ""),
    ],
)
def test_cases_of_a_function_have_expected_results_and_answers_are_not_told(results, of_function, expected) -> None:
    cases = [Case((2,), 4, {"one less": 3}, shown="two"), Case((3,), 6, shown="three")]
    criterion = case_criterion("doubled", cases, results, of_function=of_function)
    assert criterion.expected == expected and criterion.met is (results == [4, 6])
