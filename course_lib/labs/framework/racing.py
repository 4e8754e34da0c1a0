"""The race of a lab: PyTorch eager, reference and submission, interleaved, and the tier that the submission reaches beyond the noise.

Each timed answer of the submission is compared with PyTorch's answer to the same inputs. Each batch size is judged alone, so that good
answers at one size cannot hide wrong answers at another.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from course_lib.benchmark import Comparison, Interval, compare, speedup
from course_lib.benchmark.statistics import total_speedup
from course_lib.labs.framework.answers import Answering, TimedAnswers
from course_lib.labs.framework.criteria import ALL, HALF, NO_REFERENCE, Criterion, reaches_threshold, speed_at_least, tier
from course_lib.labs.framework.examination import Examiner, TimedWorker, agree_on_clock
from course_lib.labs.framework.task import UNUSUAL
from course_lib.labs.framework.work import Work

Latencies = Mapping[str, np.ndarray]
# So many times the reference's speed is more than any honest engine reaches, INT8 where the reference is FP32 included: an
# instructor has to look before it counts.
FAR_FASTER = 4.0
_ON_HOST, _ON_DEVICE = 0.05, 0.01  # half the width of the interval that a race ends with, by the clock
SMALL_BATCH = 8  # largest batch that is timed: larger ones cost time and tell no more


@dataclass(frozen=True)
class Pace:
    """A required speed: a share of the reference engine's speed, and a factor over PyTorch eager."""

    of_reference: float
    over_eager: float

    def criteria(self, latencies: Latencies, needed_for: str = ALL) -> tuple[Criterion, ...]:
        """Compare both requirements with the measured ratios. A requirement is undecided while its interval contains the bound.

        The ratios are medians. If all timed calls together are clearly below a requirement, that is a further criterion, not met.
        """
        bounds = {"eager": ("PyTorch eager", self.over_eager), "reference": ("the reference engine", self.of_reference)}
        found = []
        measured = ratios(latencies)
        for name, (label, bound) in bounds.items():
            if name not in measured:
                found.append(
                    Criterion(
                        f"speed over {label}", "not compared here", f"at least {bound:g}x", None, needed_for, code=NO_REFERENCE
                    )
                )
                continue
            found.append(speed_at_least(f"speed over {label}", measured[name], bound, needed_for))
            if found[-1].met is not False and latencies[name].sum() < bound * latencies["yours"].sum():
                total = total_speedup(latencies[name], latencies["yours"], seed=0)
                if reaches_threshold(total, bound) is False:
                    found.append(speed_at_least(f"speed of all timed calls together over {label}", total, bound, needed_for))
        return tuple(found)


@dataclass(frozen=True)
class Tiers:
    """The required speeds for full points and for partial points."""

    full: Pace
    partial: Pace

    def tier(self, latencies: Latencies) -> tuple[str, bool]:
        """The tier of `Outcome`, and whether the points for the partial one are earned."""
        return tier(self.criteria(latencies))

    def criteria(self, latencies: Latencies, hint: str = "") -> list[Criterion]:
        """The criteria for half of the points, and then those for all of them."""
        half = (*self.partial.criteria(latencies, HALF), *_known(latencies, HALF))
        return [replace(one, hint=hint) for one in (*half, *self.full.criteria(latencies), *_known(latencies))]

    def decided(self, latencies: Latencies, half_width: float = _ON_HOST) -> bool:
        """Whether the measurement is sufficient: the tier is decided, and the ratio that the leaderboard shows is known to `half_width`.

        That is the ratio to the reference. The ratio to PyTorch differs between batch sizes, so its median is known much later. Without
        the reference the tier stays open, however long the measurement takes.
        """
        clear = "reference" not in latencies or bool(_known(latencies)) or self.tier(latencies)[0] != "inconclusive"
        shown = "reference" if "reference" in latencies else "eager"
        return clear and ratios(latencies)[shown].half_width <= half_width


def _known(latencies: Latencies, needed_for: str = ALL) -> tuple[Criterion, ...]:
    """Empty, or for a submission that is far faster than the reference a criterion that only an instructor can decide."""
    found = ratios(latencies).get("reference")
    if found is None or reaches_threshold(found, FAR_FASTER) is not True:
        return ()
    bound = f"at most {FAR_FASTER:g}x the reference"
    return (Criterion("speed that is known to be possible", str(found), bound, None, needed_for, code=UNUSUAL),)


def ratios(latencies: Latencies) -> dict[str, Interval]:
    """The submission's speed relative to ``eager`` and ``reference``, if it was measured. The same latencies give the same result."""
    return {name: speedup(latencies[name], latencies["yours"], seed=0) for name in ("eager", "reference") if name in latencies}


def batch_sizes(rng: np.random.Generator, accepted: Collection[int]) -> Callable[[], int]:
    """Draws the batch size of each round: the smallest accepted size in about half of the rounds, sizes up to `SMALL_BATCH` in the others.

    The smallest size is the most important one for a service with single images. Other sizes are included because otherwise an
    engine could be fast only at the timed size.
    """
    smallest = min(accepted)
    others = [size for size in accepted if smallest < size <= max(SMALL_BATCH, smallest + 1)] or [smallest]
    return lambda: int(smallest if rng.random() < 0.5 else rng.choice(others))


def compare_answering(
    subjects: Mapping[str, TimedWorker],
    feeds: Callable[[], Mapping[str, np.ndarray]],
    *,
    truth: str,
    floor_db: float,
    time_limit_s: float,
    settled: Callable[[Latencies], bool] | None = None,
) -> Comparison:
    """`compare` of engines, one of which is ``yours``, while its timed answers are compared with those of the subject `truth`.

    Args:
        truth: the subject with the correct answers; it is also the baseline.
        floor_db: SQNR in dB that the timed answers of each batch size must have.

    Raises:
        EngineError: an engine failed, or timed answers are wrong.
    """
    first = feeds()
    clock = agree_on_clock((engine, first) for engine in subjects.values())
    answering = {name: Answering(engine) for name, engine in subjects.items()}
    answers = TimedAnswers(answering[truth], answering["yours"], floor_db)
    comparison = compare(
        answering,
        feeds,
        baseline=truth,
        time_limit_s=time_limit_s,
        min_rounds=100,
        settled=settled,
        after_round=answers.look,
    )
    answers.check()
    return replace(comparison, clock=clock)


def race(
    eager: TimedWorker,
    reference: TimedWorker | None,
    yours: TimedWorker,
    feeds: Callable[[], Mapping[str, np.ndarray]],
    tiers: Tiers,
    examiner: Examiner,
    *,
    floor_db: float,
) -> Comparison:
    """Measure in the examiner's turn until the tier is decided or the time is over.

    Args:
        reference: None in the learner's bundle; the criterion about it is then not decided.

    Raises:
        EngineError: timed answers have a larger error relative to PyTorch than `floor_db` allows.
    """
    subjects = {"eager": eager, **({"reference": reference} if reference else {}), "yours": yours}
    half_width = _ON_DEVICE if yours.device_clock else _ON_HOST

    def settled(latencies: Latencies) -> bool:
        return tiers.decided(latencies, half_width)

    return examiner.measured(
        lambda: compare_answering(
            subjects, feeds, truth="eager", floor_db=floor_db, time_limit_s=examiner.measure_s, settled=settled
        ),
        device_clock=yours.device_clock,
    )


def speed(
    work: Work,
    engines: tuple[TimedWorker, TimedWorker | None, TimedWorker],
    feeds: Callable[[], Mapping[str, np.ndarray]],
    tiers: Tiers,
    *,
    floor_db: float,
    hint: str,
) -> Iterator[Criterion]:
    """The criteria of a task that follows from a race alone. The race becomes the comparison of the examination.

    Args:
        engines: PyTorch eager, the reference or None, and the submission.
        feeds, tiers, floor_db: as in `race`.
    """
    eager, reference, yours = engines
    work.comparison = race(eager, reference, yours, feeds, tiers, work.examiner, floor_db=floor_db)
    yield from tiers.criteria(work.comparison.latencies(), hint)
