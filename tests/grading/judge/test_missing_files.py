"""A submission with files missing, through the judge."""

from __future__ import annotations

import pytest

from course_lib import labs
from course_lib.errors import EngineError
from course_lib.grading.judge.judging import judge


@pytest.mark.parametrize("name", labs.names())
def test_nothing_handed_in_is_no_fault_and_no_points(name, tmp_path):
    lab = labs.find(name)
    verdict = judge(lab, tmp_path, trusted=True)
    assert (verdict.fault, verdict.score) == ("", 0)
    messages = [outcome.message for outcome in verdict.outcomes]
    assert messages and all(any(file in message for file in lab.artifacts) and "\n" not in message for message in messages), (
        messages
    )


def test_a_missing_file_costs_the_tasks_that_need_it(tmp_path):
    """Lab 07's functions are in one file, and its recipe is another one."""
    lab = labs.find("lab07")
    lab.write_reference(tmp_path)
    (tmp_path / "search.py").unlink()
    tiers = {outcome.task.id: outcome.tier for outcome in lab.examine(tmp_path, labs.Examiner(), only="cover").outcomes}
    assert tiers == {"cover": "full"}
    (tmp_path / "recipe.toml").write_text("precision = 3")
    verdict = judge(lab, tmp_path, trusted=True)
    words = {"cover": "precision", "account": "search.py is missing", "search": "search.py is missing", "cost": "precision"}
    assert all(words[outcome.task.id] in outcome.message for outcome in verdict.outcomes)


@pytest.mark.parametrize("error", [ValueError("no such row"), RecursionError(), EngineError("of a process that nobody named")])
def test_an_error_that_nobody_foresaw_is_the_courses_fault_and_one_line(error, tmp_path, monkeypatch):
    """The gradebook gets a verdict that an instructor has to review, and not an exception out of a notebook."""
    lab = labs.find("lab07")
    lab.write_reference(tmp_path)

    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(type(lab), "examine", fails)
    verdict = judge(lab, tmp_path, trusted=True)
    assert verdict.fault.startswith(type(error).__name__) and "\n" not in verdict.fault
    assert (verdict.outcomes, verdict.score) == ((), 0)
