"""What a new token costs: recomputing everything, the reference, and a submission, early and late in a request, interleaved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from course_lib.benchmark import Comparison, Interval, compare, speedup
from course_lib.labs.framework.criteria import ALL, HALF, Criterion, reaches_threshold, tier
from course_lib.labs.framework.examination import Examiner
from course_lib.labs.lab13_generation.judge import answers
from course_lib.labs.lab13_generation.judge.decoders import HostedDecoder
from course_lib.labs.lab13_generation.judge.truth import secret_prompt
from course_lib.labs.lab13_generation.network import LENGTH

EARLY, LATE = (4, 40), (190, LENGTH - 20)  # positions from which tokens are timed
STEPS = 16  # tokens that are timed together, because one takes a fraction of a millisecond
FAR_FASTER = 2.0  # so many times the reference's speed is more than any known graph reaches: an instructor has to look
NAIVE = "recomputing"
Latencies = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Pace:
    """A cost to reach.

    Attributes:
        growth: the most that the cost may grow from early to late positions, relative to the reference's growth.
        over_naive: the least speed over recomputing, at late positions.
        of_reference: the least speed over the reference's, at late positions.
    """

    growth: float
    over_naive: float
    of_reference: float

    def criteria(self, latencies: Latencies, needed_for: str = ALL) -> list[Criterion]:
        """Each requirement with its interval; undecided while the interval contains the bound."""
        over_naive = speedup(latencies[NAIVE], latencies["yours"], seed=0)
        found = [
            Criterion(
                f"tokens per second over {NAIVE}",
                str(over_naive),
                f"at least {self.over_naive:g}x",
                reaches_threshold(over_naive, self.over_naive),
                needed_for,
            )
        ]
        if "reference" not in latencies:
            return found
        flat, of_reference = ratios(latencies)
        return [
            Criterion(
                "growth of a token's cost from early to late positions, relative to the reference's",
                _inverse(flat),
                f"at most {self.growth:g}x",
                reaches_threshold(flat, 1 / self.growth),
                needed_for,
            ),
            *found,
            Criterion(
                "tokens per second over the reference",
                str(of_reference),
                f"at least {self.of_reference:g}x",
                reaches_threshold(of_reference, self.of_reference),
                needed_for,
            ),
        ]


FULL, PARTIAL = Pace(1.4, 8.0, 0.8), Pace(2.5, 3.0, 0.4)


def ratios(latencies: Latencies) -> tuple[Interval, Interval]:
    """The reference's growth over yours, and your speed over the reference."""
    early, late = latencies["yours, early"], latencies["yours"]
    flat = speedup(latencies["reference"] * early, latencies["reference, early"] * late, seed=0)
    return flat, speedup(latencies["reference"], late, seed=0)


def criteria(latencies: Latencies) -> tuple[list[Criterion], list[Criterion]]:
    """For all points, and for half of them. Without the reference, only the speed over recomputing is compared."""
    known = []
    if "reference" in latencies and reaches_threshold(found := ratios(latencies)[1], FAR_FASTER):
        known = [Criterion("speed that is known to be possible", str(found), f"at most {FAR_FASTER:g}x the reference", None)]
    return [*FULL.criteria(latencies), *known], [*PARTIAL.criteria(latencies, HALF), *known]


def _named(subject: str, when: str) -> str:
    """A subject of the comparison; late positions have the plain name, which reports show."""
    return subject if when == "late" else f"{subject}, {when}"


def measured(yours: HostedDecoder, reference: HostedDecoder | None, naive: HostedDecoder, examiner: Examiner) -> Comparison:
    """Measure in the examiner's turn until the tier is decided or the time is over. Each timed answer is compared with the reference's.

    Args:
        reference: None in the learner's bundle, where timed answers are not compared.

    Raises:
        EngineError: the submission fails, or a timed answer is wrong.
    """
    rng = examiner.rng()
    cached = {
        _named(name, when): _Tokens(decoder, when)
        for name, decoder in (("reference", reference), ("yours", yours))
        if decoder
        for when in ("early", "late")
    }

    def feeds() -> dict[str, np.ndarray]:
        return {
            "early": secret_prompt(rng, int(rng.integers(*EARLY)) + STEPS),
            "late": secret_prompt(rng, int(rng.integers(*LATE)) + STEPS),
        }

    def look(_: Mapping[str, np.ndarray]) -> None:
        if reference is None:
            return
        for when in ("early", "late"):
            want, have = (cached[_named(name, when)].answered for name in ("reference", "yours"))
            answers.check(want, have, f"timed tokens at {when} positions")

    return examiner.measured(
        lambda: compare(
            {NAIVE: _Tokens(naive, "late", steps=1), **cached},
            feeds,
            baseline=NAIVE,
            time_limit_s=examiner.measure_s,
            min_rounds=40,
            warmup=3,
            settled=lambda latencies: tier(*criteria(latencies))[0] != "inconclusive",
            after_round=look,
        )
    )


@dataclass
class _Tokens:
    """A subject of the comparison: the time of a token. The tokens before it are fed first, outside of the clock."""

    decoder: HostedDecoder
    when: str
    steps: int = STEPS
    answered: np.ndarray = field(default_factory=lambda: np.empty((0, 0)), repr=False)

    def time_ms(self, feeds: Mapping[str, np.ndarray]) -> float:
        """Milliseconds of a token, by the examiner's clock."""
        tokens = feeds[self.when]
        self.decoder.restart(0)
        self.decoder.feed(tokens[:-STEPS], [len(tokens) - STEPS])
        spent, self.answered = self.decoder.time_ms(tokens[-STEPS:][: self.steps], [1] * self.steps)
        return spent / self.steps


def _inverse(flat: Interval) -> str:
    """The growth itself, from the interval of its reciprocal."""
    return f"{1 / flat.median:.2f}x [{1 / flat.high:.2f}, {1 / flat.low:.2f}]"
