"""The throughput of a learner's server, compared with the reference's and with a server that answers one request at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from course_lib.benchmark import Interval, speedup
from course_lib.errors import EngineError, ExaminerFault
from course_lib.labs.framework.criteria import ALL, HALF, Criterion, all_met, reaches_threshold
from course_lib.labs.framework.examination import Examiner
from course_lib.labs.framework.own_noise import OwnNoise
from course_lib.labs.lab12_serving.judge.load_test import Sources, load
from course_lib.labs.lab12_serving.sandboxed.supervisor import BURST, FEWEST, LONE

ROUNDS = 40  # of one session, at most
SESSIONS = 3  # at most
_RESAMPLES = 300
LONE_MS = 5.0  # a request that comes alone may take so much longer than without batching
MOSTLY = 90  # the percentile for which this holds too: the median says nothing about a server that delays every third request
TAIL_FACTOR, TAIL_MS = 2.0, 20.0  # the 99th percentile under load may be the reference's times this, and this more


@dataclass(frozen=True)
class Pace:
    """A throughput to reach.

    Attributes:
        of_reference: the smallest share of the reference's throughput.
        over_naive: the factor over one request at a time that is always sufficient.
        least: the factor that is always necessary.
        of_gain: the share of the reference's gain over one request at a time that is also sufficient. On a faster device, the
            server itself takes more of a request's time, so batching gains less.
    """

    of_reference: float
    over_naive: float
    least: float
    of_gain: float

    def yardstick_ms(self, reference_ms: np.ndarray, naive_ms: np.ndarray) -> np.ndarray:
        """Burst times in milliseconds of a server that is just fast enough, for each round, shape ``(rounds,)``.

        Each round uses the times measured next to it, so the interval of a ratio to it contains the noise of all three.
        """
        gain = np.clip(1 + self.of_gain * (naive_ms / reference_ms - 1), self.least, self.over_naive)
        return naive_ms / gain


# Over one request at a time the reference had 2.2 to 2.6 on two busy cores, batching without a window 0.96 to 1.0 of that, and two
# streams that do not batch 1.02. On an H200, where a lone request takes 2.4 ms, the reference had 1.44.
FULL, PARTIAL = Pace(0.5, 1.5, 1.1, 0.6), Pace(0.35, 1.1, 1.05, 0.2)


@dataclass(frozen=True)
class Load:
    """Times of several servers in the same rounds; those graded are ``"yours"``, ``"reference"`` and ``"naive"``.

    Attributes:
        burst_ms: time for `BURST` requests from many clients, by server, shape ``(rounds,)``.
        under_load_ms, lone_ms: latencies of single requests, in bursts and in sequence.
        wrong: number of wrong answers of the first server.
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

    @cached_property
    def tail_ms(self) -> Interval:
        """Interval of the 99th percentile under load, in milliseconds."""
        return _resampled(lambda ms: float(np.percentile(ms, 99)), self.under_load_ms["yours"])

    @property
    def most_tail_ms(self) -> float:
        """The largest 99th percentile under load that passes, in milliseconds."""
        return TAIL_FACTOR * float(np.percentile(self.under_load_ms["reference"], 99)) + TAIL_MS

    @cached_property
    def alone_ms(self) -> Interval:
        """Interval of the median latency of a single request, in milliseconds."""
        return _resampled(_median, self.lone_ms["yours"])

    @property
    def most_alone_ms(self) -> float:
        """The largest accepted median latency of a single request, in milliseconds."""
        return float(np.median(self.lone_ms["naive"])) + LONE_MS

    @cached_property
    def mostly_alone_ms(self) -> Interval:
        """Interval of `MOSTLY` of a single request's latency, in milliseconds, less what the machine adds to it.

        A busy machine delays requests of every server. The servers took turns, so its delays are those of the servers measured beside.
        """
        own, *others = (self.lone_ms[name] for name in ("yours", "naive", "reference"))
        machine_ms = max(float(np.percentile(one, MOSTLY)) for one in others)

        def longer(rows: np.ndarray) -> float:
            ms, *theirs = (np.percentile(column, MOSTLY) for column in rows.T)
            return float(machine_ms + ms - max(theirs))

        return _resampled(longer, np.stack([own, *others], axis=1))

    @property
    def most_mostly_alone_ms(self) -> float:
        """The largest accepted percentile of a single request's latency, in milliseconds."""
        return LONE_MS + max(float(np.percentile(self.lone_ms[name], MOSTLY)) for name in ("naive", "reference"))

    @cached_property
    def own_noise(self) -> OwnNoise:
        """Whether the times of the server's bursts vary for a cause of its own."""
        return OwnNoise.of(self.burst_ms, "naive")

    def criteria(self, needed_for: str = ALL) -> list[Criterion]:
        """The criteria for all points, or for half of them, with the measured figures."""
        pace = FULL if needed_for == ALL else PARTIAL
        of_reference, over_naive = self.ratios
        yours, reference, naive = (self.burst_ms[name] for name in ("yours", "reference", "naive"))
        yardstick = pace.yardstick_ms(reference, naive)
        factor = float(np.median(naive / yardstick))
        rates = [
            Criterion(
                "throughput over the reference's",
                str(of_reference),
                f"at least {pace.of_reference:g}x",
                reaches_threshold(of_reference, pace.of_reference),
                needed_for,
            ),
            Criterion(
                "throughput over one request at a time",
                str(over_naive),
                f"at least {factor:.3g}x, as the reference has {speedup(naive, reference, seed=0)}",
                reaches_threshold(speedup(yardstick, yours, seed=0), 1.0),
                needed_for,
            ),
        ]
        if needed_for != ALL:
            return [*self.own_noise.decide(rates)]
        return [
            *self.own_noise.decide(rates),
            _wait("99th percentile of the latency under load", self.tail_ms, self.most_tail_ms),
            _wait("median latency of a single request", self.alone_ms, self.most_alone_ms),
            _wait(f"{MOSTLY}th percentile of the latency of a single request", self.mostly_alone_ms, self.most_mostly_alone_ms),
        ]

    @property
    def decided(self) -> bool:
        """Whether these times decide the tier. What is not decided has no effect if another criterion is missed."""
        return all(all_met(self.criteria(needed_for)) is not None for needed_for in (ALL, HALF))

    def alone(self) -> str:
        """The server's own figures, in one sentence."""
        burst_ms, lone_ms = _resampled(_median, self.burst_ms["yours"]), self.alone_ms
        return (
            f"{BURST} requests at once take {burst_ms.median:.1f} ms [{burst_ms.low:.1f}-{burst_ms.high:.1f}], "
            f"a single request {lone_ms.median:.1f} ms [{lone_ms.low:.1f}-{lone_ms.high:.1f}], and every answer is right."
        )

    def joined(self, more: Load) -> Load:
        """These rounds and those of another session, as one."""
        burst, under_load, lone = (
            {name: np.concatenate([mine[name], theirs[name]]) for name in mine}
            for mine, theirs in (
                (self.burst_ms, more.burst_ms),
                (self.under_load_ms, more.under_load_ms),
                (self.lone_ms, more.lone_ms),
            )
        )
        return Load(burst, under_load, lone, self.wrong + more.wrong)

    def figures(self) -> dict[str, float]:
        """Median of each figure by name: two ratios of throughput and two latencies in milliseconds."""
        of_reference, over_naive = self.ratios
        named = {"of_reference": of_reference.median, "over_one_at_a_time": over_naive.median}
        return named | {"tail_ms": self.tail_ms.median, "lone_ms": self.alone_ms.median}


def measured(yours: Sources, examiner: Examiner) -> Load:
    """Serve the same requests with the learner's server, the reference's and the one that answers one at a time.

    If the times do not decide every criterion, the servers are started again and measured further, in at most `SESSIONS` sessions.
    """
    from course_lib.labs.lab12_serving.reference import files

    servers = {"yours": yours, "reference": files.sources(), "naive": files.sources("one_at_a_time")}
    taken = beside(servers, examiner)
    for _ in range(SESSIONS - 1):
        if taken.wrong or taken.decided:
            break
        taken = taken.joined(beside(servers, examiner))
    return taken


def beside(servers: Mapping[str, Sources], examiner: Examiner) -> Load:
    """Serve the same requests with several servers in turn. The first is the learner's server.

    Raises:
        EngineError: the first server did not start or did not answer.
        ExaminerFault: one of the others did not, and does not without the first server either.
    """
    first = next(iter(servers))
    answer, scenes, truth = examiner.measured(lambda: load(servers, examiner, ROUNDS * (BURST + LONE)))
    if failed := str(answer.get("failed", "")):
        if answer.get("who") == first:
            raise EngineError(f"the server did not start: {failed}")
        others = {name: sources for name, sources in servers.items() if name != first}
        again, *_ = load(others, examiner, 0)
        if again.get("failed", ""):
            raise ExaminerFault(f"the server did not start: {failed}")
        raise EngineError(
            "a server of the course starts alone, but not after yours. Which processes or memory does yours keep?"
        )
    lost = next((reply for reply in scenes[0].replies if reply.status != "ok"), None)
    if lost:
        raise EngineError(f"a request was not answered: {lost.text or 'no answer came in time'}")
    try:
        return _load(answer["rounds"], list(servers), len(truth.wrong(scenes[0])))
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        raise EngineError("too few bursts were answered to measure a speed") from None


def _load(rounds: list[dict[str, Any]], names: list[str], wrong: int) -> Load:
    if len(rounds) < FEWEST:
        raise ValueError("too few rounds")
    return Load(
        {
            name: np.array([1e3 * BURST * float(turn[name]["burst_s"]) / len(turn[name]["latencies_s"]) for turn in rounds])
            for name in names
        },
        {name: 1e3 * np.concatenate([turn[name]["latencies_s"] for turn in rounds]) for name in names},
        {name: 1e3 * np.concatenate([turn[name]["lone_s"] for turn in rounds]) for name in names},
        wrong,
    )


def _median(ms: np.ndarray) -> float:
    return float(np.median(ms))


def _wait(name: str, found: Interval, most_ms: float) -> Criterion:
    met = True if found.high <= most_ms else False if found.low > most_ms else None
    return Criterion(name, f"{found.median:.1f} ms [{found.low:.1f}-{found.high:.1f}]", f"at most {most_ms:.1f} ms", met)


def _resampled(statistic: Callable[[np.ndarray], float], values: np.ndarray) -> Interval:
    """Interval of a statistic, by a moving-block bootstrap; always the same for the same values. See `speedup`."""
    n = len(values)
    block = math.isqrt(n)
    starts = np.random.default_rng(0).integers(0, n, size=(_RESAMPLES, math.ceil(n / block)))
    drawn = [statistic(values[((row[:, None] + np.arange(block)) % n).ravel()[:n]]) for row in starts]
    low, high = np.percentile(drawn, [2.5, 97.5])
    value = statistic(values)
    return Interval(value, min(float(low), value), max(float(high), value))
