"""The answers of timed calls, kept outside of the clock and compared once a round is over."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from course_lib.benchmark.accuracy import decibels
from course_lib.errors import EngineError

if TYPE_CHECKING:
    from course_lib.labs.framework.examination import TimedWorker

Arrays = Mapping[str, np.ndarray]


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
            size: decibels(float(np.sqrt(noise / max(signal, 1e-300))))
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
