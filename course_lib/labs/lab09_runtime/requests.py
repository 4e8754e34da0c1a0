"""Requests for a serving loop: how many rows they have, in which order, and which ones no profile contains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from course_lib.labs.framework.learner_answers import in_any_order
from course_lib.labs.lab09_runtime.network import COLUMNS, MOST_ROWS, PROFILES

PLAIN, MIXED, BROKEN = "plain", "mixed", "broken"


@dataclass(frozen=True)
class Scene:
    """One call of `serve`.

    Attributes:
        name: `PLAIN`, `MIXED` or `BROKEN`.
        requests: float32 arrays in any order in memory; a profile contains ``(1 to 64, 128)``.
        breaks_off: the iterator of requests raises `ConnectionError` after the last one.
    """

    name: str
    requests: tuple[np.ndarray, ...]
    breaks_off: bool = False

    def __iter__(self) -> Iterator[np.ndarray]:
        yield from self.requests
        if self.breaks_off:
            raise ConnectionError("the client closed the connection")


def fits(request: np.ndarray) -> bool:
    """Whether a profile contains this request."""
    return request.ndim == 2 and request.shape[1] == COLUMNS and 1 <= len(request) <= MOST_ROWS


def scenes(rng: np.random.Generator) -> tuple[Scene, ...]:
    """Requests that all fit, then some that no profile contains among others, then a connection that breaks off.

    The second scene ends with a request that is rejected after one of the other profile: a loop that switches first has to wait.
    """
    small, large = PROFILES[0][-1], MOST_ROWS
    plain = [*rng.integers(1, small + 1, 5), small, small + 1, *rng.integers(small + 1, large + 1, 10), large]
    mixed = [*rng.integers(1, small + 1, 2), *rng.integers(small + 1, large + 1, 3)]
    broken = [*rng.integers(1, small + 1, 2), *rng.integers(small + 1, large + 1, 3)]
    few, many = (_drawn(rng, int(count)) for count in (rng.integers(1, small + 1), rng.integers(small + 1, large + 1)))
    pairs = (
        (few, _drawn(rng, large + int(rng.integers(1, 40)))),
        (many, _drawn(rng, 0)),
        (many, _drawn(rng, 5, COLUMNS - 1 if rng.random() < 0.5 else int(rng.integers(1, COLUMNS)))),
        (few, _drawn(rng, 5, COLUMNS + 1 if rng.random() < 0.5 else int(rng.integers(COLUMNS + 1, 3 * COLUMNS)))),
    )
    last = pairs[rng.integers(len(pairs))]
    others = [rejected for _, rejected in pairs if rejected is not last[1]] + [few if last[0] is many else many]
    return (
        Scene(PLAIN, _shuffled(rng, _several(rng, plain))),
        Scene(MIXED, (*_shuffled(rng, [*_several(rng, mixed), *others]), *last)),
        Scene(BROKEN, _shuffled(rng, _several(rng, broken)), breaks_off=True),
    )


def _several(rng: np.random.Generator, rows: Sequence[int]) -> list[np.ndarray]:
    return [_drawn(rng, int(count)) for count in rows]


def _drawn(rng: np.random.Generator, rows: int, columns: int = COLUMNS) -> np.ndarray:
    (drawn,) = in_any_order([rng.standard_normal((rows, columns)).astype(np.float32)], rng)
    return drawn


def _shuffled(rng: np.random.Generator, requests: list[np.ndarray]) -> tuple[np.ndarray, ...]:
    return tuple(requests[index] for index in rng.permutation(len(requests)))
