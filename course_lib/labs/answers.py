"""Fresh images for an examination, and an engine's answers to them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from course_lib.benchmark import sqnr_db
from course_lib.errors import EngineError
from course_lib.labs.base import Bench, TimedWorker
from course_lib.models import Digits, fresh_digits

CLASSES = 10
NOT_FINITE_DB = -120.0  # of answers that hold NaN or infinity


def fresh_images(bench: Bench, n: int) -> Digits:
    """``n`` digits that nobody has seen: from the grader's secret seed, or in a self-check from the operating system's."""
    seed = bench.seed if bench.seed is not None else int(np.random.SeedSequence().generate_state(1)[0])
    return fresh_digits(n, seed=seed)


def logits(engine: TimedWorker, images: np.ndarray, batches: Sequence[int]) -> np.ndarray:
    """Logits of all images, float64 ``(n, 10)``, sent in batches of the given sizes in turn: an engine can be right at 1 and wrong at 3.

    Raises:
        EngineError: a batch is refused, or the answer is not one output called logits with ten numbers for each image.
    """
    parts: list[np.ndarray] = []
    done = 0
    for size in itertools.cycle(batches):
        begin = min(done, len(images) - size)  # the last batch overlaps the one before it, so that its size is an accepted one
        parts.append(_answer(engine, images[begin : begin + size])[done - begin :])
        done = begin + size
        if done == len(images):
            return np.concatenate(parts).astype(np.float64)
    raise ValueError("need at least one batch size")


def _answer(engine: TimedWorker, images: np.ndarray) -> np.ndarray:
    outputs = engine.infer({"image": images})
    if list(outputs) != ["logits"]:
        raise EngineError(f"the engine's outputs are {', '.join(outputs)[:80] or 'none'}, expected one called logits")
    answer, expected = outputs["logits"], (len(images), CLASSES)
    if answer.shape != expected:
        raise EngineError(f"a batch of {len(images)} was answered with logits of shape {answer.shape}, expected {expected}")
    return answer


def decibels(want: np.ndarray, have: np.ndarray) -> float:
    """`sqnr_db` from `NOT_FINITE_DB` to 200, because JSON has no infinity."""
    return float(np.clip(sqnr_db(want, have), NOT_FINITE_DB, 200))
