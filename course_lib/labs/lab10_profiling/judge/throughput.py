"""The required throughput of lab 10, relative to the reference with causes left in, measured in the same session."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from course_lib.benchmark import Comparison, compare, speedup
from course_lib.benchmark.statistics import total_speedup
from course_lib.engines.worker.allowance import Allowance
from course_lib.labs.framework.criteria import ALL, HALF, Criterion, all_met, reaches_threshold
from course_lib.labs.framework.examination import Examiner, TimedWorker
from course_lib.labs.framework.own_noise import OwnNoise, settled
from course_lib.labs.framework.reference import absent
from course_lib.labs.lab10_profiling import reference_causes
from course_lib.labs.lab10_profiling import service as services
from course_lib.labs.lab10_profiling.judge.answers import CLOSE, check
from course_lib.labs.lab10_profiling.stream import Stream, fresh_stream, usual_sizes

REQUESTS = 3  # of a stream that is timed
_MOST_BEFORE = 12  # streams of one request that a process answers between the first stream and the timed one
FLOOR = {"full": 2.0, "partial": 1.1}  # over the given pipeline, whatever the yardsticks say
# Share of the throughput with 1, 2 or 3 causes left in that counts as having reached it: halfway, as a ratio, to the fastest
# pipeline with one cause more, as measured on a CPU.
AS_FAST = {1: 0.82, 2: 0.9, 3: 0.87}
LONGER = 2  # times the usual limit: it ends as soon as the answer is known, and under load that takes longer
Latencies = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Restarted:
    """The submission, started again for each stream, so that none of its threads can slow down the others.

    Attributes:
        fresh: draws a stream of this number of requests.
        before: draws the number of short streams before the timed one, so that a process cannot count which one that is.
        left: the time that all of its streams may take together, with their starts.
    """

    start: Callable[[], AbstractContextManager[TimedWorker]]
    truth: TimedWorker
    fresh: Callable[[int], Stream]
    before: Callable[[], int] = lambda: 0
    most_off: float = CLOSE
    left: Allowance = field(default_factory=Allowance, repr=False)

    def time_ms(self, feeds: Stream) -> float:
        """Time from the first byte sent to the last byte received, after one warm-up stream and a number of short ones.

        Raises:
            EngineError: the pipeline failed, took too long in all, or its answers to any of the streams differ from the given pipeline's.
        """
        early = [self.fresh(requests) for requests in (REQUESTS, *[1] * self.before())]
        expected, began = [services.answers(self.truth, stream) for stream in (*early, feeds)], time.monotonic()
        with self.start() as service:
            found = [services.answers(service, stream) for stream in early]
            started = time.perf_counter()
            found.append(services.answers(service, feeds))
            elapsed_ms = 1e3 * (time.perf_counter() - started)
        self.left.spend(time.monotonic() - began)
        for want, have in zip(expected, found, strict=True):
            check(want, have, self.most_off)
        return elapsed_ms


def race(source: str, examiner: Examiner, *, floor_only: bool = False, most_off: float = CLOSE) -> Comparison:
    """The given pipeline, the reference, the reference with one cause left in, for each cause, and the submission, interleaved.

    Args:
        floor_only: the given pipeline, the reference and the submission are enough.
        most_off: the largest error of timed answers, relative to the largest logit.

    Raises:
        EngineError: the submission failed.
    """
    rng = examiner.rng()

    def fresh(requests: int = REQUESTS) -> Stream:
        return fresh_stream(usual_sizes(rng, requests), rng)

    texts = {"given": services.given()}
    if not (alone := absent(reference_causes)):
        texts["reference"] = services.reference()
    if not (floor_only or alone):
        texts |= {cause: services.reference((cause,)) for cause in reference_causes.GUILTY}
    with ExitStack() as stack:
        ours = {name: stack.enter_context(services.started(text, examiner, ours=True)) for name, text in texts.items()}
        yours = Restarted(
            lambda: services.started(source, examiner),
            ours["given" if alone else "reference"],
            fresh,
            lambda: int(rng.integers(0, _MOST_BEFORE + 1)),
            most_off,
            Allowance(examiner.answer_s),
        )
        measuring = partial(
            compare,
            {**ours, "yours": yours},
            fresh,
            baseline="given",
            time_limit_s=LONGER * examiner.measure_s,
            warmup=1,
            min_rounds=10,
            settled=(lambda found: above(found, "partial") is not None) if floor_only or alone else decided,
        )
        return examiner.measured(measuring)


def above(latencies: Latencies, tier: str) -> bool | None:
    """Whether the submission clearly beats the given pipeline by the tier's floor: yes, no, or None if an interval contains the floor."""
    return all_met(settled(_over_given(latencies, tier, ALL), latencies, "given"))


def over_given(latencies: Latencies) -> str:
    """The throughput over the given pipeline, in the median and in all streams together, each with its interval."""
    both = (ratio(latencies["given"], latencies["yours"], seed=0) for ratio in (speedup, total_speedup))
    return " and ".join(map(str, both))


def criteria_without_reference(latencies: Latencies) -> tuple[Criterion, ...]:
    """The criteria over the given pipeline, for all points and for the first fix."""
    full, half = (_over_given(latencies, tier, needed_for) for tier, needed_for in (("full", ALL), ("partial", HALF)))
    return settled([*full, *half], latencies, "given")


def own_noise(latencies: Latencies) -> OwnNoise:
    """Whether the submission's streams vary for a cause of its own."""
    return OwnNoise.of(latencies, "given")


def _over_given(latencies: Latencies, tier: str, needed_for: str) -> list[Criterion]:
    return _typical_and_total(
        "the given pipeline", latencies["given"], latencies["yours"], FLOOR[tier], f"at least {FLOOR[tier]:g}x", needed_for
    )


def _typical_and_total(
    label: str,
    yardstick: np.ndarray,
    yours: np.ndarray,
    least: float,
    bound: str,
    needed_for: str,
    shown: np.ndarray | None = None,
) -> list[Criterion]:
    """The median of the ratios of single streams, and the ratio of all streams together unless that is certain, too.

    The median does not see streams that take long, as long as they are a minority.

    Args:
        least: of both ratios of `yardstick` to `yours`.
        shown: the times to which the displayed ratios refer, if not `yardstick`.
    """
    shown = yardstick if shown is None else shown
    typical, total = (reaches_threshold(ratio(yardstick, yours, seed=0), least) for ratio in (speedup, total_speedup))
    found = [Criterion(f"throughput over {label}", str(speedup(shown, yours, seed=0)), bound, typical, needed_for)]
    if not total:
        name = f"throughput of all streams together over {label}"
        found.append(Criterion(name, str(total_speedup(shown, yours, seed=0)), bound, total, needed_for))
    return found


def reached(latencies: Latencies, left: int) -> bool | None:
    """Whether the submission is as fast as the reference with its `left` costliest causes left in; None if undecided.

    The costs of causes add up, because the pipeline works sequentially.
    """
    return all_met(criteria(latencies, left))


def _with_left(latencies: Latencies, left: int) -> np.ndarray:
    """Time in milliseconds of the reference with its `left` costliest causes left in."""
    reference = latencies["reference"]
    costs = sorted(
        (latencies[cause] - reference for cause in reference_causes.GUILTY), key=lambda cost: -float(np.median(cost))
    )
    return reference + np.sum(costs[:left], axis=0)


def fixes(latencies: Latencies) -> tuple[int, bool]:
    """The submission's throughput as a number of fixed causes, 0 to 3, and whether the measurement could distinguish it from one more."""
    for left in (1, 2, 3):
        if reached(latencies, left):
            return 4 - left, all(reached(latencies, more) is not None for more in range(1, left))
    return 0, all(reached(latencies, left) is not None for left in (1, 2, 3))


def decided(latencies: Latencies) -> bool:
    """Whether the times decide every criterion."""
    return fixes(latencies)[1]


def criteria(latencies: Latencies, left: int = 1) -> tuple[Criterion, ...]:
    """The criteria for the throughput with `left` of the causes left in. One is for full points; fewer causes give more points."""
    with_left = np.maximum(_with_left(latencies, left), 1e-3)
    needed = AS_FAST[left] * float(np.median(latencies["reference"]) / np.median(with_left))
    without = "its costliest cause" if left == 1 else f"its {left} costliest causes"
    bound = f"at least about {needed:.2g}x, which is the reference with {without} left in"
    needed_for = ALL if left == 1 else f"{4 - left} of 3 fixes"
    found = [
        *_over_given(latencies, "full" if left == 1 else "partial", needed_for),
        *_typical_and_total(
            "the reference's", with_left, latencies["yours"], AS_FAST[left], bound, needed_for, latencies["reference"]
        ),
    ]
    return settled(found, latencies, "given")
