"""The race of a lab: PyTorch eager, the reference and the hand-in interleaved, and the tier that the hand-in clearly reaches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from course_lib.benchmark import Comparison, Interval, compare, speedup
from course_lib.labs.base import Lab, Outcome, TimedWorker, clearly
from course_lib.labs.criteria import ALL, HALF, Criterion, tier

Latencies = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Pace:
    """A speed to reach: a share of the reference engine's, and a factor over PyTorch eager."""

    of_reference: float
    over_eager: float

    def criteria(self, latencies: Latencies, needed_for: str = ALL) -> tuple[Criterion, Criterion]:
        """Both requirements against the measured ratios; one is undecided while its interval holds the bound."""
        over_eager, of_reference = ratios(latencies)
        return (
            _criterion("speed over PyTorch eager", over_eager, self.over_eager, needed_for),
            _criterion("speed over the reference engine", of_reference, self.of_reference, needed_for),
        )


def _criterion(name: str, ratio: Interval, bound: float, needed_for: str) -> Criterion:
    return Criterion(name, str(ratio), f"at least {bound:g}x", clearly(ratio, bound), needed_for)


@dataclass(frozen=True)
class Tiers:
    """The paces for all points and for a part of them."""

    full: Pace
    partial: Pace

    def tier(self, latencies: Latencies) -> tuple[str, bool]:
        """The tier of `Outcome`, and whether the points for the partial one are earned."""
        return tier(*self.criteria(latencies))

    def criteria(self, latencies: Latencies) -> tuple[tuple[Criterion, ...], tuple[Criterion, ...]]:
        """What all points need, and what half of them need."""
        return self.full.criteria(latencies), self.partial.criteria(latencies, HALF)

    def decided(self, latencies: Latencies) -> bool:
        """Enough was measured: the tier is clear, and both ratios are known to within 5 %."""
        return self.tier(latencies)[0] != "inconclusive" and all(ratio.half_width <= 0.05 for ratio in ratios(latencies))


def ratios(latencies: Latencies) -> tuple[Interval, Interval]:
    """The hand-in's speed over PyTorch eager's and over the reference's; always the same for the same latencies."""
    eager, reference = (speedup(latencies[name], latencies["yours"], seed=0) for name in ("eager", "reference"))
    return eager, reference


def race(
    eager: TimedWorker,
    reference: TimedWorker,
    yours: TimedWorker,
    feeds: Callable[[], Mapping[str, np.ndarray]],
    tiers: Tiers,
    *,
    time_limit_s: float,
) -> Comparison:
    """Measure until the tier is clear or the time is up."""
    return compare(
        {"eager": eager, "reference": reference, "yours": yours},
        feeds,
        baseline="eager",
        time_limit_s=time_limit_s,
        min_rounds=100,
        settled=tiers.decided,
    )


def outcome(lab: Lab, comparison: Comparison, tiers: Tiers, hint: str) -> Outcome:
    """The outcome of the lab's task ``speed``: all of its points, half, or none."""
    return lab.judged("speed", *tiers.criteria(comparison.latencies()), hint)
