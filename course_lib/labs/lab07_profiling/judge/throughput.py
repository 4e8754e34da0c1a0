"""The required throughput of lab 07, relative to the reference with causes left in, measured in the same session."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from course_lib.benchmark import Comparison, compare, speedup
from course_lib.engines.worker.allowance import Allowance
from course_lib.labs.framework.criteria import ALL, Criterion, all_met, reaches_threshold
from course_lib.labs.framework.examination import Examiner, TimedWorker
from course_lib.labs.lab07_profiling import reference_causes
from course_lib.labs.lab07_profiling import service as services
from course_lib.labs.lab07_profiling.judge.answers import CLOSE, check
from course_lib.labs.lab07_profiling.stream import Stream, fresh_stream, usual_sizes

REQUESTS = 3  # of a stream that is timed
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
        left: the time that all of its streams may take together, with their starts.
    """

    start: Callable[[], AbstractContextManager[TimedWorker]]
    truth: TimedWorker
    fresh: Callable[[], Stream]
    most_off: float = CLOSE
    left: Allowance = field(default_factory=Allowance, repr=False)

    def time_ms(self, feeds: Stream) -> float:
        """Time from the first byte sent to the last byte received, after a warm-up stream.

        Raises:
            EngineError: the pipeline failed, took too long in all, or its answers differ from the given pipeline's.
        """
        expected, began = services.answers(self.truth, feeds), time.monotonic()
        with self.start() as service:
            services.answers(service, self.fresh())
            started = time.perf_counter()
            found = services.answers(service, feeds)
            elapsed_ms = 1e3 * (time.perf_counter() - started)
        self.left.spend(time.monotonic() - began)
        check(expected, found, self.most_off)
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

    def fresh() -> Stream:
        return fresh_stream(usual_sizes(rng, REQUESTS), rng)

    texts = {"given": services.given(), "reference": services.reference()}
    if not floor_only:
        texts |= {cause: services.reference((cause,)) for cause in reference_causes.GUILTY}
    with ExitStack() as stack:
        ours = {name: stack.enter_context(services.started(text, examiner, ours=True)) for name, text in texts.items()}
        yours = Restarted(
            lambda: services.started(source, examiner), ours["reference"], fresh, most_off, Allowance(examiner.answer_s)
        )
        measuring = partial(
            compare,
            {**ours, "yours": yours},
            fresh,
            baseline="given",
            time_limit_s=LONGER * examiner.measure_s,
            warmup=1,
            min_rounds=10,
            settled=(lambda found: above(found, "partial") is not None) if floor_only else decided,
        )
        return examiner.measured(measuring)


def above(latencies: Latencies, tier: str) -> bool | None:
    """Whether the submission clearly beats the given pipeline by the tier's floor: yes, no, or None if the interval contains the floor."""
    return reaches_threshold(speedup(latencies["given"], latencies["yours"]), FLOOR[tier])


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


def criteria(latencies: Latencies, left: int = 1) -> list[Criterion]:
    """The criteria for the throughput with `left` of the causes left in. One is for full points; fewer causes give more points."""
    over, of_reference = (speedup(latencies[name], latencies["yours"]) for name in ("given", "reference"))
    needed = AS_FAST[left] * float(np.median(latencies["reference"]) / np.median(_with_left(latencies, left)))
    tier = "full" if left == 1 else "partial"
    as_fast = reaches_threshold(speedup(np.maximum(_with_left(latencies, left), 1e-3), latencies["yours"]), AS_FAST[left])
    without = "its costliest cause" if left == 1 else f"its {left} costliest causes"
    needed_for = ALL if left == 1 else f"{4 - left} of 3 fixes"
    return [
        Criterion(
            "throughput over the given pipeline", str(over), f"at least {FLOOR[tier]:g}x", above(latencies, tier), needed_for
        ),
        Criterion(
            "throughput over the reference's",
            str(of_reference),
            f"at least about {needed:.2g}x, which is the reference with {without} left in",
            as_fast,
            needed_for,
        ),
    ]
