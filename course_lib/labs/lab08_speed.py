"""The throughput of a learner's server beside the reference's and the one that answers one request at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from course_lib.benchmark import Interval, speedup
from course_lib.errors import EngineError, ExaminerFault
from course_lib.labs.base import Bench, clearly
from course_lib.labs.lab08_bench import Sources, load
from course_lib.labs.lab08_reference import sources
from course_lib.labs.lab08_supervisor import BURST, FEWEST, LONE

ROUNDS = 40  # at most
LONE_MS = 5.0  # a request that comes alone may take so much longer than without batching
TAIL_FACTOR, TAIL_MS = 2.0, 20.0  # the 99th percentile under load may be the reference's times this, and this more


@dataclass(frozen=True)
class Pace:
    """A throughput to reach.

    Attributes:
        of_reference: the least share of the reference's.
        over_naive: the factor over one request at a time that is always enough.
        least: the factor that is always needed.
        of_gain: enough, too, is this share of what the reference gains over one request at a time. The faster the device, the
            more of a request's time is the server's own, and the less is there for batching to gain.
    """

    of_reference: float
    over_naive: float
    least: float
    of_gain: float

    def factor(self, reference_over_naive: float) -> float:
        """The factor over one request at a time that is needed where the reference has this one."""
        return max(self.least, min(self.over_naive, 1 + self.of_gain * (reference_over_naive - 1)))


# Over one request at a time the reference had 2.2 to 2.6 on two busy cores, batching without a window 0.96 to 1.0 of that, and two
# streams that do not batch 1.02. On an H200, where a lone request takes 2.4 ms, the reference had 1.44.
FULL, PARTIAL = Pace(0.5, 1.5, 1.1, 0.6), Pace(0.35, 1.1, 1.05, 0.2)


@dataclass(frozen=True)
class Load:
    """Times of several servers in the same rounds; those graded are ``"yours"``, ``"reference"`` and ``"naive"``.

    Attributes:
        burst_ms: time for a burst of requests from many clients, by server, shape ``(rounds,)``.
        under_load_ms, lone_ms: latencies of single requests, in bursts and one after the other.
        wrong: how many answers of the first server were wrong.
    """

    burst_ms: dict[str, np.ndarray]
    under_load_ms: dict[str, np.ndarray]
    lone_ms: dict[str, np.ndarray]
    wrong: int = 0

    @property
    def ratios(self) -> tuple[Interval, Interval]:
        """Throughput over the reference's and over that of one request at a time."""
        yours = self.burst_ms["yours"]
        return speedup(self.burst_ms["reference"], yours, seed=0), speedup(self.burst_ms["naive"], yours, seed=0)

    @property
    def reference_over_naive(self) -> float:
        """What batching gains here: the reference's throughput over that of one request at a time."""
        return speedup(self.burst_ms["naive"], self.burst_ms["reference"], seed=0).median

    @property
    def tail_ms(self) -> tuple[float, float]:
        """The 99th percentile under load: yours, and the largest that is taken."""
        yours, reference = (float(np.percentile(self.under_load_ms[name], 99)) for name in ("yours", "reference"))
        return yours, TAIL_FACTOR * reference + TAIL_MS

    @property
    def alone_ms(self) -> tuple[float, float]:
        """The median latency of a request that comes alone: yours, and the largest that is taken."""
        yours, naive = (float(np.median(self.lone_ms[name])) for name in ("yours", "naive"))
        return yours, naive + LONE_MS

    @property
    def prompt(self) -> bool:
        """Whether nobody waits too long."""
        return all(have <= most for have, most in (self.tail_ms, self.alone_ms))

    def reaches(self, pace: Pace) -> bool | None:
        """Whether a pace is clearly reached: yes, no, or None where that cannot be decided."""
        needed = (pace.of_reference, pace.factor(self.reference_over_naive))
        answers = [clearly(r, t) for r, t in zip(self.ratios, needed, strict=True)]
        return False if False in answers else None if None in answers else True

    def asked(self, pace: Pace) -> str:
        """A pace in words."""
        factor = pace.factor(self.reference_over_naive)
        return f"{pace.of_reference:g} of the reference's throughput and {factor:.3g}x that of one request at a time"

    def message(self) -> str:
        of_reference, over_naive = self.ratios
        (tail, most_tail), (alone, most_alone) = self.tail_ms, self.alone_ms
        return (
            f"{over_naive} the throughput of one request at a time, {of_reference} the reference's; 99 % of the answers under load "
            f"within {tail:.0f} ms (at most {most_tail:.0f}), a lone request {alone:.1f} ms (at most {most_alone:.1f})."
        )

    def figures(self) -> dict[str, float]:
        of_reference, over_naive = self.ratios
        named = {"of_reference": of_reference.median, "over_one_at_a_time": over_naive.median}
        return named | {"tail_ms": self.tail_ms[0], "lone_ms": self.alone_ms[0]}


def measured(yours: Sources, bench: Bench) -> Load:
    """Serve the same requests with the learner's server, the reference's and the one that answers one at a time."""
    return beside({"yours": yours, "reference": sources(), "naive": sources("lab08_one_at_a_time")}, bench)


def beside(servers: Mapping[str, Sources], bench: Bench) -> Load:
    """Serve the same requests with several servers, in turn. The first is the learner's.

    Raises:
        EngineError: the first server did not come up or did not answer.
        ExaminerFault: one of the others did not.
    """
    first = next(iter(servers))
    answer, scenes, truth = bench.measured(lambda: load(servers, bench, ROUNDS * (BURST + LONE)))
    if failed := str(answer.get("failed", "")):
        error = EngineError if answer.get("who") == first else ExaminerFault
        raise error(f"the server did not come up: {failed}")
    lost = next((reply for reply in scenes[0].replies if reply.status != "ok"), None)
    if lost:
        raise EngineError(f"a request was not answered: {lost.text or 'no answer came in time'}")
    try:
        return _load(answer["rounds"], list(servers), len(truth.wrong(scenes[0])))
    except (KeyError, TypeError, ValueError):
        raise EngineError("too few bursts were answered to tell a speed") from None


def _load(rounds: list[dict[str, Any]], names: list[str], wrong: int) -> Load:
    if len(rounds) < FEWEST:
        raise ValueError("too few rounds")
    return Load(
        {name: np.array([1e3 * float(turn[name]["burst_s"]) for turn in rounds]) for name in names},
        {name: 1e3 * np.concatenate([turn[name]["latencies_s"] for turn in rounds]) for name in names},
        {name: 1e3 * np.concatenate([turn[name]["lone_s"] for turn in rounds]) for name in names},
        wrong,
    )
