"""Examinations without processes, and what they found: for tests of what an examination says, not of how it is isolated."""

from __future__ import annotations

from contextlib import nullcontext
from functools import cache

import onnx

from course_lib.engines import Plan, build, load
from course_lib.grading.isolation import sandbox
from course_lib.grading.judge.judging import judge
from course_lib.labs import Examination, Examiner
from course_lib.recipe import Recipe
from tests.labs.submissions import Mistake


class Quick(Examiner):
    """Engines answer in this process, and nothing is built twice."""

    def build(self, model, recipe):
        return _built(model.read_bytes(), recipe.dumps(), self.builder)

    def runnable(self, model, recipe, built=None):
        return _built(model.read_bytes(), recipe.dumps(), self.runner)

    def baseline(self, source):
        return nullcontext(load(source))

    reference = engine = baseline


@cache
def _built(model: bytes, recipe: str, backend: str) -> Plan:
    return build(onnx.load_model_from_string(model), Recipe.loads(recipe), backend=backend)


def tiers(examined: Examination) -> dict[str, str]:
    return {outcome.task.id: outcome.tier for outcome in examined.outcomes}


def examined(lab, folder, task, examiner):
    """The outcome of one task."""
    (outcome,) = lab.examine(folder, examiner, only=task).outcomes
    assert outcome.task.id == task
    return outcome


def check_mistake(lab, folder, mistake: Mistake, examiner: Examiner) -> None:
    """Whether a submission with a mistake gets its tier and its words, in a folder that holds what it starts from."""
    mistake.make(folder)
    outcome = examined(lab, folder, mistake.task, examiner)
    assert outcome.tier == mistake.tier, outcome
    assert mistake.words in f"{outcome.message} {outcome.hint}" and mistake.hint in outcome.hint and outcome.hint, outcome


def judged_reference(lab, folder):
    """The judge's verdict about the reference, with full marks for each task: in the sandbox, where there is one."""
    lab.write_reference(folder)
    verdict = judge(lab, folder, trusted=bool(sandbox.problem()))
    assert not verdict.fault, verdict.fault
    check_solved(lab, verdict)
    return verdict


def check_solved(lab, found) -> None:
    """Whether an examination or a verdict has full marks for each task."""
    assert tiers(found) == {task.id: "full" for task in lab.tasks}, [one.message for one in found.outcomes]
