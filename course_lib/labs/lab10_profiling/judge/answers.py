"""Whether a pipeline answers what the given one answers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from course_lib.errors import EngineError

TOLERANCE = (
    1e-3  # of logits, relative to the largest; orders of float32 sums differ by 1e-6, another rounding of pixels by 1e-2
)
CLOSE = 0.1  # up to here it is the same network on images that were prepared otherwise
SIZES = ((1,), (20,), (33, 5), (3, 32, 31, 64), (7, 1, 1, 40), (50,))  # streams whose requests do not divide by any batch
ANOTHER_COUNT, OTHER_ROWS, ANOTHER_ORDER, FAR_OFF = "another_count", "other_rows", "another_order", "far_off"  # codes of errors


def largest_error(expected: Sequence[np.ndarray], found: Sequence[np.ndarray]) -> float:
    """Largest deviation of a logit, relative to the largest logit; infinity if there is NaN.

    Raises:
        EngineError: the number of answers, or of their rows, is wrong.
    """
    if len(found) != len(expected):
        raise EngineError(f"{len(expected)} requests were sent and {len(found)} answers came back", code=ANOTHER_COUNT)
    for index, (want, have) in enumerate(zip(expected, found, strict=True)):
        if len(want) != len(have):
            said = f"request {index + 1} of {len(expected)} has {len(want)} scans, its answer {len(have)} rows"
            raise EngineError(said, code=OTHER_ROWS)
    want, have = np.concatenate(expected), np.concatenate(found)
    error = float(np.abs(want - have).max() / np.abs(want).max())
    return error if np.isfinite(error) else float("inf")


def permuted(expected: Sequence[np.ndarray], found: Sequence[np.ndarray]) -> bool:
    """Whether the rows are right, in another order.

    Raises:
        ValueError: more than 1000 rows.
    """
    want, have = np.concatenate(expected), np.concatenate(found)
    if len(want) > 1000:
        raise ValueError("too many rows to compare each with each")
    nearest = np.abs(want[:, None] - have[None]).max(-1).min(1)
    return bool((nearest <= TOLERANCE * np.abs(want).max()).all())


def check(expected: Sequence[np.ndarray], found: Sequence[np.ndarray], most: float = CLOSE) -> None:
    """Reject answers that are far from the correct ones.

    Args:
        most: the largest error that is taken, relative to the largest logit.

    Raises:
        EngineError: the answers are rejected; the message says why.
    """
    error = largest_error(expected, found)
    if error > most:
        order, code = (", but they are there in another order", ANOTHER_ORDER) if permuted(expected, found) else ("", FAR_OFF)
        raise EngineError(
            f"the logits of a fresh stream are off by {100 * error:.{0 if error >= 0.01 else 2}f} % of the largest{order}",
            code=code,
        )
