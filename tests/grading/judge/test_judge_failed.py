"""An error of the course's own code, while it judges or describes one task, costs that task its judgment and no other task."""

from __future__ import annotations

import json

import pytest

from course_lib import labs
from course_lib.engines.worker.allowance import Allowance, Charged
from course_lib.errors import EngineError, ExaminerFault
from course_lib.grading.judge import judging
from course_lib.grading.judge.judging import judge
from course_lib.grading.judge.review import FAULT, Points, Review
from course_lib.labs import Examiner
from course_lib.labs.framework import runner
from course_lib.labs.framework.criteria import JUDGE_FAILED, Tier
from course_lib.labs.lab11_torch_tensorrt import checks, reference
from tests.labs.quick import tiers

LAB = labs.find("lab11")


ANSWER = {"registered": [checks.OPERATOR], "converter": [], "dynamic": {"error": "no"}, "long": {"error": "no"}, "border": ""}


@pytest.fixture
def submission(tmp_path, monkeypatch):
    """A converter without right answers, no model, and settings that let a border pass. No process runs."""
    (tmp_path / "converter.py").write_text("")
    (tmp_path / "settings.toml").write_text(reference.SETTINGS)
    monkeypatch.setattr(runner, "run_isolated", lambda *_, **__: json.dumps(ANSWER).encode())
    return tmp_path


def fails(*_):
    raise ValueError("not enough values to unpack")


@pytest.mark.parametrize(
    ("task", "function"),
    [
        ("converter", "converter"),
        ("converter", "registrations"),
        ("settings", "settings"),
        ("settings", "decided"),
        ("model", "outcome"),
    ],
)
def test_only_the_task_that_it_judges_has_no_judgment(task, function, submission, monkeypatch, capsys):
    def fails_for_task(lab, task_id, *found, **options):
        return fails() if task_id == task and Tier.INCONCLUSIVE not in found else usual(lab, task_id, *found, **options)

    usual = getattr(type(LAB), function, None)
    monkeypatch.setattr(type(LAB) if usual else checks, function, fails_for_task if usual else fails)
    verdict = judge(LAB, submission, trusted=True)
    assert not verdict.fault
    assert tiers(verdict) == {name: "inconclusive" if name == task else "none" for name in ("converter", "model", "settings")}
    assert Review.of(LAB, verdict).points == Points(0, LAB.task(task).points, 10), "the points that were lost are not open"
    (reason,) = Review.of(LAB, verdict).reasons
    assert (reason.code, reason.cells) == (FAULT, (task,)) and "the examiner failed" in reason.text
    (outcome,) = (one for one in verdict.outcomes if one.task.id == task)
    assert outcome.code == JUDGE_FAILED and "unpack" not in outcome.message, "what a learner reads has no secret in it"
    assert verdict.provenance["faults"] == {task: "ValueError: not enough values to unpack"}
    assert "ValueError: not enough values to unpack" in capsys.readouterr().err


def test_several_tasks_may_fail_one_by_one(submission, monkeypatch):
    for name in ("converter", "settings"):
        monkeypatch.setattr(checks, name, fails)
    verdict = judge(LAB, submission, trusted=True)
    assert tiers(verdict) == {"converter": "inconclusive", "model": "none", "settings": "inconclusive"}
    assert Review.of(LAB, verdict).points == Points(0, 6, 10)


@pytest.mark.parametrize(
    "error",
    [
        ExaminerFault("it can be judged by nobody"),
        *(kind("it can\nbe judged") for kind in (ValueError, RecursionError, EngineError)),
    ],
)
def test_an_examiner_that_can_judge_nothing_has_failed(error, submission, monkeypatch):
    """The gradebook gets a verdict that an instructor has to review, and not an exception out of a notebook."""

    def examined(lab, folder, examiner, only=None):
        raise error

    monkeypatch.setattr(type(LAB), "examine", examined)
    verdict = judge(LAB, submission, trusted=True)
    assert "it can be judged" in verdict.fault and "\n" not in verdict.fault and (verdict.outcomes, verdict.score) == ((), 0)


def test_a_submission_that_has_used_up_its_time_gains_nothing_from_an_error(submission, monkeypatch):
    allowance = Allowance(1.0, "more than {seconds:g} s in all")

    def late(*_):
        allowance.left = 0.0
        fails()

    monkeypatch.setattr(checks, "converter", late)
    found = judging._attempt(LAB, submission, Examiner(launcher=Charged(list, allowance)), allowance, ())
    assert found.points == 0 and not found.faults and {one.tier for one in found.outcomes} == {"none"}
