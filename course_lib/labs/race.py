"""The race of a lab: PyTorch eager, the reference and the hand-in interleaved, and the tier that the hand-in clearly reaches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from course_lib.benchmark import Comparison, Interval, compare, speedup
from course_lib.labs.base import Lab, Outcome, TimedWorker, clearly

Latencies = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Pace:
    """A speed to reach: a share of the reference engine's, and a factor over PyTorch eager."""

    of_reference: float
    over_eager: float

    def reached(self, latencies: Latencies) -> bool | None:
        """Whether the hand-in clearly reaches both: yes, no, or None while the intervals hold both answers."""
        over_eager, of_reference = ratios(latencies)
        answers = (clearly(of_reference, self.of_reference), clearly(over_eager, self.over_eager))
        return False if False in answers else None if None in answers else True

    def __str__(self) -> str:
        return f"{self.of_reference:g} of the reference's speed and {self.over_eager:g}x over PyTorch eager"


@dataclass(frozen=True)
class Tiers:
    """The paces for all points and for a part of them."""

    full: Pace
    partial: Pace

    def tier(self, latencies: Latencies) -> tuple[str, bool]:
        """The tier of `Outcome`, and whether the points for the partial one are earned."""
        full, partial = self.full.reached(latencies), self.partial.reached(latencies)
        if full:
            return "full", True
        if partial:
            return ("inconclusive" if full is None else "partial"), True
        return ("inconclusive" if partial is None else "none"), False

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
    tier, partial = tiers.tier(comparison.latencies())
    message = said(comparison.latencies())
    if tier == "full":
        return lab.outcome("speed", "full", message)
    return lab.outcome("speed", tier, f"{message} Full points need {tiers.full}.", hint, share=0.5 if partial else 0.0)


def said(latencies: Latencies) -> str:
    """Both ratios of a race in one sentence."""
    over_eager, of_reference = ratios(latencies)
    return f"{over_eager} over PyTorch eager, {of_reference} of the reference's speed."
