"""An engine's answers to fresh images, and the race of PyTorch eager, the reference and a submission, which are timed in turn.

Each timed answer of the submission is compared with PyTorch's answer to the same inputs. Each batch size is judged alone, so that good
answers at one size cannot hide wrong answers at another.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from course_lib.benchmark import Comparison, Interval, compare, speedup, sqnr_db
from course_lib.benchmark.statistics import total_speedup
from course_lib.errors import OTHER_NAME, EngineError
from course_lib.labs.framework.criteria import (
    ALL,
    HALF,
    NO_REFERENCE,
    UNUSUAL,
    Criterion,
    Tier,
    reaches_threshold,
    speed_at_least,
    tier,
)
from course_lib.labs.framework.examination import Examiner, TimedWorker, agree_on_clock
from course_lib.models import Digits, fresh_digits
from course_lib.recipe import Recipe

Latencies = Mapping[str, np.ndarray]
Arrays = Mapping[str, np.ndarray]
CLASSES = 10
NOT_FINITE_DB = -120.0  # of answers that hold NaN or infinity
_EACH_SIZE = 16  # images on which each batch size is judged
# So many times the reference's speed is more than any honest engine reaches, INT8 where the reference is FP32 included: an
# instructor has to look before it counts.
FAR_FASTER = 4.0
_ON_HOST, _ON_DEVICE = 0.05, 0.01  # half the width of the interval that a race ends with, by the clock
SMALL_BATCH = 8  # largest batch that is timed: larger ones cost time and tell no more


def fresh_images(examiner: Examiner, n: int) -> Digits:
    """``n`` fresh digits, from the grader's secret seed, or from a seed of the operating system in a self-check."""
    return fresh_digits(n, seed=examiner.drawn_seed())


def accepted_batches(recipe: Recipe, shape: Sequence[int], largest: int, name: str = "image") -> list[int]:
    """Batch sizes up to `largest` that some profile accepts, for one input `name` whose other dimensions are `shape`."""
    names = dict.fromkeys(other for profile in recipe.profiles for other in profile.root)
    if names and name not in names:
        raise EngineError(
            f"the engine's input is {', '.join(names)[:80]}, expected one called {name}: name it in the export", code=OTHER_NAME
        )
    shapes = [profile[name] for profile in recipe.profiles if name in profile.root]
    return [n for n in range(1, largest + 1) if any(accepted.contains((n, *shape)) for accepted in shapes)]


def logits(engine: TimedWorker, images: np.ndarray, batches: Sequence[int], name: str = "image") -> np.ndarray:
    """Logits of all images, float64 ``(n, 10)``, sent in batches of the given sizes in turn. An engine can be right at 1 and wrong at 3.

    An answer that is not one output called logits with ten numbers for each image is an EngineError.
    """
    parts: list[np.ndarray] = []
    done = 0
    sizes = itertools.cycle(batches)
    while done < len(images):
        size = next(sizes)
        begin = min(done, len(images) - size)  # the last batch overlaps the one before it, so that its size is an accepted one
        parts.append(_answer(engine, {name: images[begin : begin + size]}, size)[done - begin :])
        done = begin + size
    return np.concatenate(parts).astype(np.float64)


def _answer(engine: TimedWorker, feeds: Arrays, size: int) -> np.ndarray:
    outputs = engine.infer(feeds)
    if list(outputs) != ["logits"]:
        raise EngineError(
            f"the engine's outputs are {', '.join(outputs)[:80] or 'none'}, expected one called logits: name it in the export",
            code=OTHER_NAME,
        )
    answer, expected = outputs["logits"], (size, CLASSES)
    if answer.shape != expected:
        raise EngineError(f"a batch of {size} was answered with logits of shape {answer.shape}, expected {expected}")
    return answer


def by_batch_size(engine: TimedWorker, images: np.ndarray, sizes: Sequence[int]) -> list[np.ndarray]:
    """`logits` for each batch size on an equal part of the images, so that each size can be judged alone."""
    return [logits(engine, part, [size]) for size, part in zip(sizes, np.array_split(images, len(sizes)), strict=True)]


def check_every_size(
    truth: TimedWorker, engine: TimedWorker, images: np.ndarray, sizes: Sequence[int], floor_db: float
) -> float:
    """SQNR in dB at the worst batch size of a service. All are examined, because a graph can choose its answers by the size.

    The first size with less than `floor_db`, on at least 16 images, is an EngineError. There are as many images as the largest size.
    """
    least = min(_EACH_SIZE, len(images))
    right = logits(truth, images[-max(*sizes, least) :], [max(sizes)])
    worst = math.inf
    for size in sizes:
        last = slice(-max(size, least), None)
        found = decibels(right[last], logits(engine, images[last], [size]))
        if found < floor_db:
            raise EngineError(
                f"a batch of {size} is answered with {found:.0f} dB SQNR, at least {floor_db:g} dB are needed at every batch size"
            )
        worst = min(worst, found)
    return worst


def decibels(want: np.ndarray, have: np.ndarray) -> float:
    """`sqnr_db` from `NOT_FINITE_DB` to 200, because JSON has no infinity."""
    return float(np.clip(sqnr_db(want, have), NOT_FINITE_DB, 200))


def worst_decibels(want: Sequence[np.ndarray], have: Sequence[np.ndarray]) -> float:
    """`decibels` of the part that is furthest off."""
    return min(map(decibels, want, have))


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
                missing = ("not compared here", f"at least {bound:g}x", None)
                found.append(Criterion(f"speed over {label}", *missing, needed_for, code=NO_REFERENCE))
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

    def tier(self, latencies: Latencies) -> tuple[Tier, bool]:
        """The tier of `Outcome`, and whether the points for the partial one are earned."""
        return tier(self.criteria(latencies))

    def criteria(self, latencies: Latencies, hint: str = "") -> list[Criterion]:
        """The criteria for half of the points, and then those for all of them."""
        criteria = (*self.partial.criteria(latencies, HALF), *_too_fast(latencies), *self.full.criteria(latencies))
        return [replace(criterion, hint=hint) for criterion in criteria]

    def decided(self, latencies: Latencies, half_width: float = _ON_HOST) -> bool:
        """Whether the measurement is sufficient: the tier is decided, and the ratio that the leaderboard shows is known to `half_width`.

        That is the ratio to the reference. The ratio to PyTorch differs between batch sizes, so its median is known much later. Without
        the reference the tier stays open, however long the measurement takes.
        """
        if "reference" not in latencies:
            return ratios(latencies)["eager"].half_width <= half_width
        clear = bool(_too_fast(latencies)) or self.tier(latencies)[0] != Tier.INCONCLUSIVE
        return clear and ratios(latencies)["reference"].half_width <= half_width


def _too_fast(latencies: Latencies) -> tuple[Criterion, ...]:
    """Empty, or for a submission that is far faster than the reference a criterion that only an instructor can decide."""
    found = ratios(latencies).get("reference")
    if found is None or reaches_threshold(found, FAR_FASTER) is not True:
        return ()
    bound = f"at most {FAR_FASTER:g}x the reference"
    return (Criterion("speed that is known to be possible", str(found), bound, None, HALF, code=UNUSUAL),)


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


@dataclass
class _Answering:
    """An engine that is timed and keeps its last answer."""

    engine: TimedWorker
    answered: Arrays = field(default_factory=dict, repr=False)

    def time_ms(self, feeds: Arrays) -> float:
        """Time of one call in milliseconds."""
        elapsed_ms, self.answered = self.engine.timed(feeds)
        return elapsed_ms


def _powers(size: int, want: Arrays, have: Arrays) -> np.ndarray:
    """Powers of the right answers to one batch, and of the errors. NaN, infinity and other outputs are an EngineError."""
    powers = np.zeros(2)
    for name, right in want.items():
        answer = have.get(name)
        if answer is None or answer.shape != right.shape:
            found = "no such output" if answer is None else f"shape {answer.shape}"
            raise EngineError(f"a timed batch of {size} has {found} for {name}, expected {right.shape}")
        if not np.isfinite(answer).all():
            raise EngineError(f"a timed batch of {size} was answered with NaN or infinity")
        powers += np.square(right, dtype=np.float64).sum(), np.square(answer.astype(np.float64) - right).sum()
    return powers


def compare_answering(
    subjects: Mapping[str, TimedWorker],
    feeds: Callable[[], Arrays],
    *,
    truth: str,
    floor_db: float,
    time_limit_s: float,
    settled: Callable[[Latencies], bool] | None = None,
) -> Comparison:
    """`compare` of engines, one of which is ``yours``, while its timed answers are compared with those of the baseline `truth`.

    If those of one batch size have an SQNR of less than `floor_db`, that is an EngineError.
    """
    first = feeds()
    clock = agree_on_clock((engine, first) for engine in subjects.values())
    answering = {name: _Answering(engine) for name, engine in subjects.items()}
    powers: dict[int, np.ndarray] = defaultdict(lambda: np.zeros(2))  # by batch size

    def look(feeds: Arrays) -> None:
        size = len(next(iter(feeds.values())))
        powers[size] += _powers(size, answering[truth].answered, answering["yours"].answered)

    comparison = compare(answering, feeds, baseline=truth, time_limit_s=time_limit_s, settled=settled, after_round=look)
    found = {size: 10 * np.log10(max(right, 1e-300) / max(error, 1e-300)) for size, (right, error) in powers.items()}
    worst = min(found, key=lambda size: found[size])
    if found[worst] < floor_db:
        raise EngineError(
            f"the timed answers for a batch of {worst} have {found[worst]:.0f} dB SQNR; "
            f"the same network has at least {floor_db:g} dB at every batch size"
        )
    return replace(comparison, clock=clock)


def race(
    subjects: Mapping[str, TimedWorker], feeds: Callable[[], Arrays], tiers: Tiers, examiner: Examiner, *, floor_db: float
) -> Comparison:
    """Compare ``eager``, which has the correct answers, ``yours``, and ``reference`` if it is there, until the tier is decided.

    The examiner's time limit ends it, too. See `compare_answering`.
    """
    on_device = subjects["yours"].device_clock

    def measure() -> Comparison:
        return compare_answering(
            subjects,
            feeds,
            truth="eager",
            floor_db=floor_db,
            time_limit_s=examiner.measure_s,
            settled=lambda latencies: tiers.decided(latencies, _ON_DEVICE if on_device else _ON_HOST),
        )

    return examiner.measured(measure, device_clock=on_device)
