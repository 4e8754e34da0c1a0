"""Which tier a race ends in, on latencies whose ratios are known."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest

from course_lib import labs
from course_lib.labs.race import Pace, Tiers, outcome, race

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


def test_a_clear_tier_with_vague_ratios_is_not_decided():
    measured = latencies(1.0, 4.0, noise=0.3, rounds=20)
    assert TIERS.tier(measured)[0] == "full"
    assert not TIERS.decided(measured)


def test_the_criteria_name_ratio_bound_and_answer():
    over_eager, of_reference = TIERS.full.criteria(latencies(0.7, 2.0, noise=1e-6))
    assert str(over_eager) == "speed over PyTorch eager: found 2.00x [2.00-2.00], all points need at least 1.5x: met"
    assert (of_reference.found, of_reference.bound, of_reference.met) == ("0.70x [0.70-0.70]", "at least 0.8x", False)


def test_race_measures_the_three_on_the_same_inputs():
    class Subject:
        def __init__(self, ms):
            self.ms, self.seen = ms, []

        def time_ms(self, feeds):
            self.seen.append(feeds["x"])
            return self.ms * (1 + 0.001 * (len(self.seen) % 3))

    eager, reference, yours = Subject(30.0), Subject(10.0), Subject(10.0)
    numbers = iter(range(10**6))
    comparison = race(eager, reference, yours, lambda: {"x": next(numbers)}, TIERS, time_limit_s=20)
    assert eager.seen == reference.seen == yours.seen == sorted(set(yours.seen))
    assert (comparison.baseline, comparison.stopped) == ("eager", "precise")
    assert TIERS.tier(comparison.latencies()) == ("full", True)


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
    comparison = SimpleNamespace(latencies=lambda: latencies(of_reference, over_eager))
    found = outcome(labs.find("lab01"), comparison, TIERS, "Look again.")
    assert (found.task.id, found.tier, found.points) == ("speed", tier, points)
    named = "speed over the reference engine is " in found.message
    busy = found.message.startswith("Inconclusive: the machine is busy. Not decided: ")
    assert (named, busy) == (tier != "full", tier == "inconclusive")
    # a machine that is busy is no reason to change the engine, unless a bound was missed as well
    between = (tier, points) == ("inconclusive", 2)
    wanted = "Close other programs, then run this check again: it measures anew." if between else "Look again."
    assert found.hint == ("" if tier == "full" else wanted)
    for shown in (found._repr_html_(), json.dumps(found.to_json())):
        assert all(criterion.name in shown and criterion.bound in shown for criterion in found.criteria)
