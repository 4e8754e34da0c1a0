"""The error of an engine of lab 04 relative to the float network, for every request size of the service."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from course_lib.labs.framework.answers import decibels, fresh_images, logits
from course_lib.labs.framework.examination import Examiner, TimedWorker

BATCHES, ROWS = (1, 3, 8, 32), (16, 32, 48)
# SQNR of the logits against PyTorch's, in dB. Measured: the reference and other right answers 65 to 70, BF16 48, a norm's squares
# forgotten 34 in block 1, 14 in block 2 and 0 in the last norm, the shipped encoder 24, a tenth of the weights pruned 25, overflow
# clamped to 65 504 16.
FAR_BETTER_DB = 25.0  # above the reference's SQNR: an instructor has to look
FULL_LOSS_DB, FULL_FLOOR_DB, PARTIAL_DB = 6.0, 50.0, 30.0
_FEW_DIGITS_DB = (
    10.0  # a single digit can be this much worse than all of them; measured in 960 requests: 7.0 (reference), 8.7 (BF16)
)


@dataclass(frozen=True)
class Error:
    """SQNR of the logits over all requests with the same number of pixel rows, for the number at which the submission is worst.

    Attributes:
        sqnr_db: SQNR of the submission, from -120 to 200.
        reference_db: SQNR of the reference on the same digits, None without the reference.
        rows: pixel rows of a digit.
        lost: requests, as (batch, rows), that were answered with NaN or infinity.
        wrong: single requests that were answered as another network answers them.
    """

    sqnr_db: float
    reference_db: float | None
    rows: int
    lost: tuple[tuple[int, int], ...]
    wrong: tuple[tuple[int, int], ...] = ()

    @property
    def needed_db(self) -> float:
        """The ratio in dB that full points need."""
        return FULL_FLOOR_DB if self.reference_db is None else max(self.reference_db - FULL_LOSS_DB, FULL_FLOOR_DB)

    @property
    def far_better(self) -> bool:
        """Closer to FP32 than FP16 can be: every known correct answer is within 5 dB of the reference."""
        return self.reference_db is not None and self.sqnr_db > self.reference_db + FAR_BETTER_DB

    @property
    def tier(self) -> str:
        """The tier of `Outcome`."""
        if self.lost or self.wrong or self.sqnr_db < PARTIAL_DB:
            return "none"
        return "full" if self.sqnr_db >= self.needed_db else "partial"


def error(given: TimedWorker, reference: TimedWorker | None, yours: TimedWorker, examiner: Examiner) -> Error:
    """Send the same fresh digits to all three.

    Args:
        reference: None in the learner's bundle.

    Raises:
        EngineError: the submission rejects a request or answers in another shape.
    """
    found: dict[int, float] = {}
    theirs: list[float] = []
    lost: list[tuple[int, int]] = []
    wrong: list[tuple[int, int]] = []
    requests = list(_requests(examiner))
    for rows in ROWS:
        same = [tokens for tokens in requests if tokens.shape[1] == rows]
        want, have = ([logits(engine, tokens, [len(tokens)], "tokens") for tokens in same] for engine in (given, yours))
        lost += [(len(answer), rows) for answer in have if not np.isfinite(answer).all()]
        expected = np.concatenate(want)
        found[rows] = decibels(expected, np.concatenate(have))
        if reference:
            answered = [logits(reference, tokens, [len(tokens)], "tokens") for tokens in same]
            theirs.append(decibels(expected, np.concatenate(answered)))
    for tokens in _others(examiner):
        right, answer = (logits(engine, tokens, [len(tokens)], "tokens") for engine in (given, yours))
        if not np.isfinite(answer).all():
            lost.append((len(tokens), tokens.shape[1]))
        elif decibels(right, answer) < PARTIAL_DB - _FEW_DIGITS_DB:
            wrong.append((len(tokens), tokens.shape[1]))
    rows = min(found, key=lambda rows: found[rows])
    return Error(found[rows], min(theirs, default=None), rows, tuple(lost), tuple(wrong))


def _others(examiner: Examiner) -> Iterator[np.ndarray]:
    """Every other batch with rows that cannot be known in advance, and every other number of rows with such a batch."""
    rng, digits = examiner.rng(), fresh_images(examiner, BATCHES[-1])
    batches, rows = range(1, BATCHES[-1] + 1), range(ROWS[0], ROWS[-1] + 1)
    drawn = [(batch, int(rng.choice(rows))) for batch in batches] + [(int(rng.choice(batches[:8])), each) for each in rows]
    for batch, each in drawn:
        yield digits.tokens(each)[:batch]


def _requests(examiner: Examiner) -> Iterator[np.ndarray]:
    """Fresh digits, ``(batch, rows, 32)``, in every combination of the two."""
    fresh = fresh_images(examiner, sum(BATCHES))
    for rows in ROWS:
        yield from np.split(fresh.tokens(rows), np.cumsum(BATCHES)[:-1])
