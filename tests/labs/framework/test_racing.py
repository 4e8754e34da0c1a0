"""Which tier a race ends in, on latencies whose ratios are known."""

from __future__ import annotations

import itertools
import json
import re
import time

import numpy as np
import pytest

from course_lib import labs
from course_lib.benchmark.statistics import timed_ms
from course_lib.errors import EngineError
from course_lib.labs import Examiner
from course_lib.labs.framework.criteria import UNUSUAL
from course_lib.labs.framework.racing import Pace, Tiers, batch_sizes, race

TIERS = Tiers(full=Pace(of_reference=0.8, over_eager=1.5), partial=Pace(of_reference=0.5, over_eager=1.1))


def latencies(of_reference: float, over_eager: float, noise: float = 0.01, rounds: int = 200) -> dict[str, np.ndarray]:
    """Rounds whose ratios lie evenly around the given ones, so that an interval of their median holds these."""
    spread = 1 + noise * np.random.default_rng(0).permutation(np.linspace(-1, 1, rounds))
    yours = np.full(rounds, 10.0)
    return {"yours": yours, "reference": of_reference * yours * spread, "eager": over_eager * yours * spread}


@pytest.mark.parametrize(
    ("of_reference", "over_eager", "tier", "partial"),
    [
        (1.0, 2.0, "full", True),
        (0.7, 2.0, "partial", True),
        (1.0, 1.3, "partial", True),
        (0.4, 2.0, "none", False),
        (1.0, 1.0, "none", False),
        (0.8, 2.0, "inconclusive", True),
        (0.5, 2.0, "inconclusive", False),
        (1.0, 1.1, "inconclusive", False),
    ],
)
def test_tier(of_reference, over_eager, tier, partial):
    measured = latencies(of_reference, over_eager)
    assert TIERS.tier(measured) == (tier, partial)
    assert TIERS.decided(measured) == (tier != "inconclusive")


@pytest.mark.parametrize(("share", "tier"), [(0.25, "partial"), (0.4, "partial"), (0.02, "full")])
def test_a_minority_of_slow_calls_counts(share, tier):
    """The median does not see them: an engine whose time depends on the values could be slow for a third of its inputs."""
    measured = latencies(1.0, 1.9)
    slow = np.random.default_rng(1).permutation(200) < 200 * share
    measured["yours"] = np.where(slow, 2.6, 1.0) * measured["yours"]
    assert TIERS.tier(measured)[0] == tier
    failed = [one for one in TIERS.full.criteria(measured) if one.met is False]
    assert all("all timed calls together" in one.name for one in failed) and bool(failed) == (tier != "full")


def test_calls_that_another_process_slows_down_do_not_count_against_one_subject():
    """A burst of load meets all subjects alike, on average."""
    measured, rng = latencies(1.0, 2.0), np.random.default_rng(2)
    for name in measured:
        measured[name] = measured[name] * np.where(rng.random(200) < 0.25, rng.uniform(1, 3, 200), 1.0)
    assert TIERS.tier(measured)[0] == "full"


def test_a_clear_tier_with_vague_ratios_is_not_decided():
    measured = latencies(1.0, 4.0, noise=0.3, rounds=20)
    assert TIERS.tier(measured)[0] == "full"
    assert not TIERS.decided(measured)


def test_the_criteria_name_ratio_bound_and_answer():
    over_eager, of_reference = TIERS.full.criteria(latencies(0.7, 2.0, noise=1e-6))
    assert over_eager.name == "speed over PyTorch eager"
    assert (over_eager.found, over_eager.bound, over_eager.met) == ("2.00x [2.00-2.00]", "at least 1.5x", True)
    assert (of_reference.found, of_reference.bound, of_reference.met) == ("0.70x [0.70-0.70]", "at least 0.8x", False)


class Subject:
    """An engine that takes a known time and whose answers are twice the inputs, or what `answer` makes of them."""

    device_clock = False

    def __init__(self, ms: float, answer=lambda x: 2 * x) -> None:
        self.ms, self.answer, self.seen = ms, answer, []

    def timed(self, feeds):
        answer: list = []
        return timed_ms(lambda: answer.append(self.infer(feeds))), answer[0]

    def infer(self, feeds):
        self.seen.append(feeds["x"])
        time.sleep(self.ms / 1e3)
        return {"logits": self.answer(feeds["x"])}


def racing_on(batches, yours: Subject, **subjects: Subject):
    numbers, sizes = np.random.default_rng(1), itertools.cycle(batches)
    eager, reference = subjects.get("eager", Subject(2.0)), subjects.get("reference", Subject(1.0))
    draw = lambda: {"x": numbers.random((next(sizes), 10), np.float32)}  # noqa: E731
    raced = {"eager": eager, "reference": reference, "yours": yours}
    return race(raced, draw, TIERS, Examiner(measure_s=3), floor_db=20), (eager, reference, yours)


def test_race_measures_the_three_on_the_same_inputs():
    comparison, (eager, reference, yours) = racing_on([1, 4], Subject(1.0))
    assert len(eager.seen) == len(reference.seen) == len(yours.seen) > 100
    assert all(one is other is third for one, other, third in zip(eager.seen, reference.seen, yours.seen, strict=True))
    assert comparison.baseline == "eager"
    assert set(comparison.latencies()) == {"eager", "reference", "yours"}


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda x: 2 * x if len(x) > 1 else 1.5 * x, "a batch of 1 have 12 dB"),
        (lambda x: 2 * x if len(x) != 7 else 0.2 * x, "a batch of 7 have 1 dB"),
        (lambda x: 2 * x + np.float32(np.nan) * (len(x) == 4), "NaN or infinity"),
        (lambda x: (2 * x)[:1], "expected (4, 10)"),
    ],
)
def test_timed_answers_are_judged_for_each_batch_size_alone(answer, words):
    """The wrong size has one image in 40: among all images together it would not show."""
    with pytest.raises(EngineError, match=re.escape(words)):
        racing_on([1, *[4] * 20, 7], Subject(1.0, answer))


def test_timed_sizes_are_the_smallest_and_others_that_are_drawn():
    draw = batch_sizes(np.random.default_rng(3), range(1, 33))
    drawn = [draw() for _ in range(400)]
    assert set(drawn) == set(range(1, 9))
    assert 0.4 < drawn.count(1) / len(drawn) < 0.6
    only = batch_sizes(np.random.default_rng(3), [16])
    assert {only() for _ in range(20)} == {16}


def test_a_submission_that_is_far_too_fast_is_left_to_an_instructor():
    measured = latencies(of_reference=12.0, over_eager=20.0)
    assert TIERS.tier(measured) == ("inconclusive", False)
    assert TIERS.decided(measured), "more measuring does not decide it"
    found = labs.find("lab01").decided("speed", TIERS.criteria(measured, "Look again."))
    assert (found.tier, found.points, found.code) == ("inconclusive", 0, UNUSUAL)
    assert "An instructor will look" in found.message


@pytest.mark.parametrize(
    ("of_reference", "over_eager", "tier", "points"),
    [
        (1.0, 2.0, "full", 4),
        (0.7, 2.0, "partial", 2),
        (0.8, 2.0, "inconclusive", 2),
        (0.5, 2.0, "inconclusive", 0),
        (0.4, 2.0, "none", 0),
    ],
)
def test_outcome_says_which_criterion_costs_points(of_reference, over_eager, tier, points):
    found = labs.find("lab01").decided("speed", TIERS.criteria(latencies(of_reference, over_eager), "Look again."))
    assert (found.task.id, found.tier, found.points) == ("speed", tier, points)
    named = "speed over the reference engine is " in found.message
    busy = "Inconclusive: the machine is busy. Not decided: " in found.message
    assert (named, busy) == (tier != "full", tier == "inconclusive")
    # a machine that is busy is not a reason to change the engine, unless a bound was missed as well
    between = (tier, points) == ("inconclusive", 2)
    wanted = "Close other programs, then run this check again." if between else "Look again."
    assert found.hint == ("" if tier == "full" else wanted)
    for shown in (found._repr_html_(), json.dumps(found.to_json())):
        assert all(criterion.name in shown and criterion.bound in shown for criterion in found.criteria)
