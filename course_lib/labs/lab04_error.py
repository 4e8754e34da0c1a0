"""How far the answers of an engine of lab 04 are from the float network's, for every size of request that the service sends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from course_lib.benchmark import sqnr_db
from course_lib.errors import EngineError
from course_lib.labs.answers import fresh_images
from course_lib.labs.base import Bench, TimedWorker

BATCHES, ROWS = (1, 3, 8, 32), (16, 32, 48)
# SQNR of the logits against PyTorch's, in dB. Measured: the reference and other right answers 65 to 70, BF16 48, a norm's squares
# forgotten 34 in block 1, 14 in block 2 and 0 in the last norm, the shipped encoder 24, a tenth of the weights pruned 25, overflow
# clamped to 65 504 16.
FULL_LOSS_DB, FULL_FLOOR_DB, PARTIAL_DB = 6.0, 50.0, 30.0


@dataclass(frozen=True)
class Error:
    """SQNR of the logits over all requests with as many pixel rows, for the rows where the hand-in is worst.

    Attributes:
        sqnr_db: of the hand-in, from -120 to 200.
        reference_db: of the reference, on the same digits.
        rows: pixel rows of a digit.
        lost: requests, as (batch, rows), that were answered with NaN or infinity.
    """

    sqnr_db: float
    reference_db: float
    rows: int
    lost: tuple[tuple[int, int], ...]

    @property
    def needed_db(self) -> float:
        """What full points ask for."""
        return max(self.reference_db - FULL_LOSS_DB, FULL_FLOOR_DB)

    @property
    def tier(self) -> str:
        """The tier of `Outcome`."""
        if self.lost or self.sqnr_db < PARTIAL_DB:
            return "none"
        return "full" if self.sqnr_db >= self.needed_db else "partial"


def error(given: TimedWorker, reference: TimedWorker, yours: TimedWorker, bench: Bench) -> Error:
    """Send the same fresh digits to all three.

    Raises:
        EngineError: the hand-in refuses a request or answers in another shape.
    """
    found: dict[int, tuple[float, float]] = {}
    lost: list[tuple[int, int]] = []
    requests = list(_requests(bench))
    for rows in ROWS:
        same = [tokens for tokens in requests if tokens.shape[1] == rows]
        want, theirs, have = ([_logits(engine, tokens) for tokens in same] for engine in (given, reference, yours))
        lost += [(len(answer), rows) for answer in have if not np.isfinite(answer).all()]
        found[rows] = _decibels(want, have), _decibels(want, theirs)
    rows = min(found, key=lambda rows: found[rows][0])
    return Error(found[rows][0], min(theirs for _, theirs in found.values()), rows, tuple(lost))


def _requests(bench: Bench) -> Iterator[np.ndarray]:
    """Fresh digits, ``(batch, rows, 32)``, in every combination of the two."""
    fresh = fresh_images(bench, sum(BATCHES))
    for rows in ROWS:
        yield from np.split(fresh.tokens(rows), np.cumsum(BATCHES)[:-1])


def _logits(engine: TimedWorker, tokens: np.ndarray) -> np.ndarray:
    """Float64 ``(batch, 10)``."""
    outputs = engine.infer({"tokens": tokens})
    if list(outputs) != ["logits"]:
        raise EngineError(f"the engine's outputs are {', '.join(outputs) or 'none'}, expected one called logits")
    if outputs["logits"].shape != (len(tokens), 10):
        raise EngineError(
            f"{len(tokens)} digits were answered in the shape {outputs['logits'].shape}, expected {(len(tokens), 10)}"
        )
    return outputs["logits"].astype(np.float64)


def _decibels(want: list[np.ndarray], have: list[np.ndarray]) -> float:
    return float(np.clip(sqnr_db(np.concatenate(want), np.concatenate(have)), -120, 200))  # JSON has no infinity
