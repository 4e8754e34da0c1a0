"""Fresh images for an examination, and an engine's answers to them: those that are judged, and those of timed calls."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from course_lib.benchmark import sqnr_db
from course_lib.benchmark.accuracy import decibels as as_decibels
from course_lib.errors import EngineError
from course_lib.labs.framework.examination import Examiner, TimedWorker
from course_lib.models import Digits, fresh_digits
from course_lib.recipe import Recipe

Arrays = Mapping[str, np.ndarray]
CLASSES = 10
_EACH_SIZE = 16  # images on which each batch size is judged
SLOWEST, _CALLS = 50, 3  # an engine that takes so many times PyTorch's time is not examined; the best of so many calls
NOT_FINITE_DB = -120.0  # of answers that hold NaN or infinity


def fresh_images(examiner: Examiner, n: int) -> Digits:
    """``n`` fresh digits, from the grader's secret seed, or from a seed of the operating system in a self-check."""
    return fresh_digits(n, seed=examiner.drawn_seed())


def logits(engine: TimedWorker, images: np.ndarray, batches: Sequence[int], name: str = "image") -> np.ndarray:
    """Logits of all images, float64 ``(n, 10)``, sent in batches of the given sizes in turn. An engine can be right at 1 and wrong at 3.

    Args:
        name: name of the engine's input.

    Raises:
        EngineError: a batch is rejected, or the answer is not one output called logits with ten numbers for each image.
    """
    parts: list[np.ndarray] = []
    done = 0
    for size in itertools.cycle(batches):
        begin = min(done, len(images) - size)  # the last batch overlaps the one before it, so that its size is an accepted one
        parts.append(_answer(engine, {name: images[begin : begin + size]}, size)[done - begin :])
        done = begin + size
        if done == len(images):
            return np.concatenate(parts).astype(np.float64)
    raise ValueError("need at least one batch size")


def by_batch_size(engine: TimedWorker, images: np.ndarray, sizes: Sequence[int], name: str = "image") -> list[np.ndarray]:
    """`logits` for each batch size on an equal part of the images, so that each size can be judged alone.

    Raises:
        EngineError: as in `logits`.
    """
    parts = np.array_split(images, len(sizes))
    return [logits(engine, part, [size], name) for size, part in zip(sizes, parts, strict=True)]


def check_pace(truth: TimedWorker, engine: TimedWorker, request: np.ndarray, name: str = "image") -> None:
    """Whether one request is answered in reasonable time, before hundreds of them are sent.

    Args:
        truth: the course's own PyTorch module.
        request: a small batch that the engine accepts.

    Raises:
        EngineError: the engine takes more than `SLOWEST` times as long.
    """
    ours_ms, yours_ms = (min(one.time_ms({name: request}) for _ in range(_CALLS)) for one in (truth, engine))
    if yours_ms > SLOWEST * ours_ms:
        raise EngineError(
            f"a batch of {len(request)} takes {yours_ms:.0f} ms, and {ours_ms:.1f} ms in PyTorch: that is more than {SLOWEST} times as long"
        )


def check_every_size(
    truth: TimedWorker, engine: TimedWorker, images: np.ndarray, sizes: Sequence[int], floor_db: float
) -> float:
    """Every batch size of a service, not only those that are judged in detail: none may have other answers than the rest.

    Args:
        truth: the course's own; its answers are computed once, at the largest size.
        images: at least as many as the largest size.
        floor_db: SQNR in dB that the logits of each size must have, on at least 16 images.

    Returns:
        SQNR of the worst size, in dB.

    Raises:
        EngineError: a size is rejected or answered wrongly; the text names it.
    """
    least = min(_EACH_SIZE, len(images))
    right = logits(truth, images[-max(*sizes, least) :], [max(sizes)])
    worst = float("inf")
    for size in sizes:
        last = slice(-max(size, least), None)
        found = decibels(right[last], logits(engine, images[last], [size]))
        if found < floor_db:
            raise EngineError(
                f"a batch of {size} is answered with {found:.0f} dB SQNR, at least {floor_db:g} dB are needed at every batch size"
            )
        worst = min(worst, found)
    return worst


def worst_decibels(want: Sequence[np.ndarray], have: Sequence[np.ndarray]) -> float:
    """`decibels` of the part that is furthest off."""
    return min(decibels(one, other) for one, other in zip(want, have, strict=True))


def accepted_batches(recipe: Recipe, shape: Sequence[int], largest: int, name: str = "image") -> list[int]:
    """Batch sizes up to `largest` that some profile accepts, for one input whose other dimensions are `shape`."""
    shapes = [profile[name] for profile in recipe.profiles if name in profile.root]
    return [n for n in range(1, largest + 1) if any(one.contains((n, *shape)) for one in shapes)]


def _answer(engine: TimedWorker, feeds: dict[str, np.ndarray], size: int) -> np.ndarray:
    outputs = engine.infer(feeds)
    if list(outputs) != ["logits"]:
        raise EngineError(f"the engine's outputs are {', '.join(outputs)[:80] or 'none'}, expected one called logits")
    answer, expected = outputs["logits"], (size, CLASSES)
    if answer.shape != expected:
        raise EngineError(f"a batch of {size} was answered with logits of shape {answer.shape}, expected {expected}")
    return answer


def decibels(want: np.ndarray, have: np.ndarray) -> float:
    """`sqnr_db` from `NOT_FINITE_DB` to 200, because JSON has no infinity."""
    return float(np.clip(sqnr_db(want, have), NOT_FINITE_DB, 200))


@dataclass
class Answering:
    """An engine that is timed and keeps its last answer."""

    engine: TimedWorker
    answered: Arrays = field(default_factory=dict, repr=False)

    def time_ms(self, feeds: Arrays) -> float:
        """Time of one call in milliseconds."""
        elapsed_ms, self.answered = self.engine.timed(feeds)
        return elapsed_ms


@dataclass
class TimedAnswers:
    """The error of a submission's timed answers, for each batch size.

    Attributes:
        truth, yours: names of the two compared subjects.
        floor_db: SQNR in dB that the answers of each batch size must have together.
    """

    truth: Answering
    yours: Answering
    floor_db: float
    _powers: dict[int, np.ndarray] = field(default_factory=lambda: defaultdict(lambda: np.zeros(2)), repr=False)

    def look(self, feeds: Arrays) -> None:
        """Compare the answers of the round that has just ended; its batch size is that of the first input.

        Raises:
            EngineError: other outputs or shapes than the right ones, or numbers that are not finite.
        """
        size = len(next(iter(feeds.values())))
        want, have = self.truth.answered, self.yours.answered
        for name, right in want.items():
            answer = have.get(name)
            if answer is None or answer.shape != right.shape:
                found = "no such output" if answer is None else f"shape {answer.shape}"
                raise EngineError(f"a timed batch of {size} has {found} for {name}, expected {right.shape}")
            if not np.isfinite(answer).all():
                raise EngineError(f"a timed batch of {size} was answered with NaN or infinity")
            error = answer.astype(np.float64) - right
            self._powers[size] += np.sum(np.square(right, dtype=np.float64)), np.sum(np.square(error))

    def sqnr_db(self) -> dict[int, float]:
        """For each batch size that was timed, the SQNR of all its answers in dB."""
        return {
            size: as_decibels(float(np.sqrt(noise / max(signal, 1e-300))))
            for size, (signal, noise) in sorted(self._powers.items())
        }

    def check(self) -> None:
        """Judge each batch size alone.

        Raises:
            EngineError: the answers of one size have a larger error than `floor_db` allows.
        """
        wrong = {size: found for size, found in self.sqnr_db().items() if found < self.floor_db}
        if wrong:
            size = min(wrong, key=lambda size: wrong[size])
            raise EngineError(
                f"the timed answers for a batch of {size} have {wrong[size]:.0f} dB SQNR; "
                f"the same network has at least {self.floor_db:g} dB at every batch size"
            )
