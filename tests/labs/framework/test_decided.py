"""Tier, points, message and hint follow from a task's criteria."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from course_lib.errors import BuildError
from course_lib.labs import Examiner, Task
from course_lib.labs.framework.criteria import (
    ALL,
    HALF,
    UNUSUAL,
    Criterion,
    Outcome,
    Tier,
    at_least,
    at_most,
    equals,
    holds,
    open_without_reference,
)
from course_lib.labs.framework.lab import Work, step
from tests.labs.framework.toy_lab import Answer

OPEN = open_without_reference("kernels", "12")


@pytest.mark.parametrize(
    ("criteria", "tier", "points", "words"),
    [
        ([at_least("SQNR", 41.0, 36.0, unit="dB")], "full", 2, "SQNR: 41 dB."),
        ([at_least("SQNR", float("nan"), 36.0, HALF, unit="dB")], "none", 0, "SQNR is nan dB"),
        ([at_least("SQNR", 41.0, 20.0, HALF), at_most("bytes", 3_000, 2_000)], "partial", 1, "Not met: bytes is 3,000"),
        ([at_least("SQNR", 41.0, 20.0, HALF), OPEN], "inconclusive", 0, "Not compared with the reference yet"),
        ([at_least("SQNR", 10.0, 20.0, HALF), OPEN], "none", 0, "SQNR is 10, half of the points need at least 20"),
        ([holds("one engine", True, HALF), equals("types", "FP32", "FP16"), OPEN], "partial", 1, "types is FP32"),
        ([Criterion("speed", "1.0x", "at least 1.1x", None)], "inconclusive", 0, "the machine is busy"),
        ([Criterion("speed", "9x", "at most 4x", None, code=UNUSUAL)], "inconclusive", 0, "An instructor will look at it"),
    ],
)
def test_what_follows_from_criteria(criteria, tier, points, words):
    outcome = Answer().decided("answer", criteria)
    assert (outcome.tier, outcome.points if tier != "inconclusive" else 0) == (tier, points), outcome
    assert words in outcome.message
    assert outcome.criteria == tuple(criteria)


def test_the_hint_is_that_of_what_costs_most():
    criteria = [at_most("bytes", 3, 2, ALL, hint="smaller"), at_most("error", 3, 2, HALF, hint="nearer")]
    assert Answer().decided("answer", criteria).hint == "nearer"


def test_a_step_that_fails_is_taken_once_and_costs_each_task_that_needs_it(tmp_path):
    taken: list[Path] = []

    class Steps(Work):
        @step
        def text(self) -> str:
            taken.append(self.folder)
            raise BuildError("it cannot be read")

    def check(work):
        yield holds("it is there", True)
        yield equals("text", work.text, "42")

    class Lab(Answer):
        tasks = (Task("one", "One", 1, check), Task("two", "Two", 1, check))
        examine = Answer.__mro__[1].examine

        def work(self, folder, examiner):
            return Steps(self, folder, examiner)

    examined = Lab().examine(tmp_path, Examiner(builder="onnxruntime", runner="onnxruntime"))
    assert [(one.tier, one.message) for one in examined.outcomes] == [("none", "it cannot be read")] * 2
    assert len(taken) == 1


@pytest.mark.parametrize("tier", Tier)
def test_a_tier_is_its_word_in_files_and_texts_and_read_back_as_a_tier(tier: Tier) -> None:
    values = json.loads(json.dumps(Answer().outcome("answer", tier, "found").to_json()))
    assert values["tier"] == tier.value == f"{tier}" == str(tier)
    assert Outcome.from_json(values).tier is tier
