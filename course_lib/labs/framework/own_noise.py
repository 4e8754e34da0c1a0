"""Whether a submission's times vary for a cause of its own, and not because the machine is busy.

A submission whose time depends on a coin has an interval that contains any bound, however long the measurement takes. The machine is
not the cause if the reference, timed in the same rounds, hardly varies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from course_lib.labs.framework.criteria import Criterion

_WIDE = 2.5  # so many times longer than the shortest calls are the longest, and so many times the reference's
_RANGE = 2.5, 97.5  # percentiles
_CHANCE = 0.002  # that a machine would disturb two equal subjects as differently
_FLIPS = 4000


def settled(criteria: Iterable[Criterion], latencies: Mapping[str, np.ndarray], baseline: str) -> tuple[Criterion, ...]:
    """The criteria after `OwnNoise.decide`. It is asked at each look of a race, and most looks leave nothing undecided."""
    found = tuple(criteria)
    return OwnNoise.of(latencies, baseline).decide(found) if any(one.met is None for one in found) else found


@dataclass(frozen=True)
class OwnNoise:
    """How many times longer than the shortest calls the longest ones are, relative to the baseline's in the same rounds.

    Attributes:
        yours, reference: 1 if no call differs.
        proven: only the submission varies, by more than two equal subjects on a busy machine would differ.
    """

    yours: float = 1.0
    reference: float = 1.0
    proven: bool = False

    @classmethod
    def of(cls, latencies: Mapping[str, np.ndarray], baseline: str) -> OwnNoise:
        """Compare ``yours`` with ``reference``; without a reference nothing is proven.

        Each call is related to the baseline's call of the same round, because inputs of rounds differ in size.
        """
        if not {"reference", baseline} <= latencies.keys():
            return cls()
        ratios = [np.log(latencies[name] / latencies[baseline]) for name in ("yours", "reference")]
        yours, reference = (float(np.exp(np.diff(np.percentile(one, _RANGE))[0])) for one in ratios)
        if yours < _WIDE * max(reference, 1.0):
            return cls(yours, reference)
        further = np.subtract(*(np.abs(one - np.median(one)) for one in ratios))
        signs = 2.0 * np.random.default_rng(0).integers(0, 2, (_FLIPS, len(further)), np.int8) - 1
        # Under equal disturbance each difference could as well have the other sign.
        by_chance = float((signs @ further >= further.sum()).mean())
        return cls(yours, reference, by_chance < _CHANCE)

    def decide(self, criteria: Iterable[Criterion]) -> tuple[Criterion, ...]:
        """The criteria, of which those that only the submission's own noise leaves undecided are not met: the lower end counts."""
        return tuple(replace(one, met=False) if self.proven and one.met is None else one for one in criteria)

    def __str__(self) -> str:
        if not self.proven:
            return ""
        times = f"Your times differ by {self.yours:.1f}x between rounds, and the reference's by {self.reference:.1f}x"
        return f"{times}, so the machine is not the cause: the lower end of each interval counts."
