"""A small auto-tuner that times candidates for the same work, chooses the fastest one, and keeps the choice in a cache.

TensorRT's builder does this with kernels; here the candidates are any functions.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from course_lib.benchmark.statistics import Interval, speedup, timed_ms
from course_lib.errors import CourseError

if TYPE_CHECKING:
    import torch

Tactics = Mapping[str, Callable[[], object]]


def first_impression(tactics: Tactics) -> str:
    """The tactic that was fastest when each was timed once."""
    return min(tactics, key=lambda name: timed_ms(tactics[name]))


@dataclass(frozen=True)
class Tuning:
    """The measurements of a tuner.

    Attributes:
        times_ms: for each tactic, one time per round, shape ``(rounds,)``. The times of a round were taken directly one after another.
    """

    times_ms: Mapping[str, np.ndarray] = field(repr=False)

    @property
    def medians_ms(self) -> dict[str, float]:
        """Median times in milliseconds by tactic, fastest first."""
        medians = {name: float(np.median(times)) for name, times in self.times_ms.items()}
        return dict(sorted(medians.items(), key=lambda entry: entry[1]))

    @property
    def best(self) -> str:
        """The tactic with the smallest median."""
        return next(iter(self.medians_ms))

    def over(self, tactic: str) -> Interval:
        """The speedup of the best tactic over another one, with its interval; needs 10 rounds."""
        return speedup(self.times_ms[tactic], self.times_ms[self.best])

    def compared(self, tactic: str) -> str:
        """`over` in words: which of the two is faster according to this measurement.

        `best` has the smallest median of all rounds, and `over` compares within each round. On a busy machine the two may
        disagree: a load that lasts for some rounds changes one median but not most of the pairs.
        """
        ratio = self.over(tactic)
        if ratio.low > 1:
            says = "faster"
        elif ratio.high < 1:
            says = "slower within most rounds, in spite of its median: the machine was busy, tune again"
        else:
            says = "no difference shown"
        return f"{self.best} over {tactic}: {ratio}, {says}"


def tune(tactics: Tactics, *, rounds: int = 20, seed: int | None = None) -> Tuning:
    """Time every tactic once per round, in a fresh random order, so that a busy moment of the machine affects all alike."""
    rng = np.random.default_rng(seed)
    names = list(tactics)
    times: dict[str, list[float]] = {name: [] for name in names}
    for call in tactics.values():
        call()  # warm up
    for _ in range(rounds):
        for index in rng.permutation(len(names)):
            times[names[index]].append(timed_ms(tactics[names[index]]))
    return Tuning({name: np.array(series) for name, series in times.items()})


@dataclass(frozen=True)
class TuningCache:
    """Choices by problem, valid on one kind of machine: the idea of TensorRT's timing cache.

    Attributes:
        machine: machine on which the times were measured.
        entries: the tactic chosen for each problem.
    """

    machine: str = field(default_factory=platform.processor)
    entries: Mapping[str, str] = field(default_factory=dict)

    def choose(self, problem: str, tactics: Tactics, *, rounds: int = 20) -> tuple[str, TuningCache]:
        """The cached tactic if it still exists, otherwise the best measured one, and a cache that holds it."""
        known = self.entries.get(problem)
        if known is not None and known in tactics:
            return known, self
        best = tune(tactics, rounds=rounds).best
        return best, self.edited(problem, best)

    def edited(self, problem: str, tactic: str) -> TuningCache:
        """A copy in which the choice for one problem is set by hand."""
        return replace(self, entries={**self.entries, problem: tactic})

    def combine(self, other: TuningCache, *, ignore_mismatch: bool = False) -> TuningCache:
        """Add the entries of another cache that this one lacks.

        Raises:
            CourseError: the other cache is from another machine, and that difference is not ignored.
        """
        if other.machine != self.machine and not ignore_mismatch:
            raise CourseError(f"a cache measured on {other.machine!r} says nothing about {self.machine!r}: tune again here")
        return replace(self, entries={**other.entries, **self.entries})

    def dumps(self) -> str:
        """The cache as JSON."""
        return json.dumps({"machine": self.machine, "entries": dict(self.entries)}, indent=1)

    @classmethod
    def loads(cls, text: str) -> TuningCache:
        """The cache from the text that `dumps` wrote.

        Raises:
            CourseError: the text is something else.
        """
        try:
            data = json.loads(text)
            machine, entries = data["machine"], data["entries"]
            if not isinstance(machine, str) or not all(isinstance(value, str) for value in entries.values()):
                raise TypeError
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise CourseError("this is not a tuning cache: expected JSON with a machine and entries, tune again") from None
        return cls(machine, entries)


def blocked_products(
    a: torch.Tensor, b: torch.Tensor, blocks: Sequence[tuple[int, int, int]]
) -> dict[str, Callable[[], torch.Tensor]]:
    """One tactic for each block size: the product of two matrices, computed block by block into a reused result.

    Args:
        a, b: shapes ``(m, k)`` and ``(k, n)``.
        blocks: rows, columns and depth of a block.
    """

    def tactic(rows: int, columns: int, depth: int) -> Callable[[], torch.Tensor]:
        result = a.new_empty(len(a), b.shape[1])

        def run() -> torch.Tensor:
            for i in range(0, len(a), rows):
                for j in range(0, b.shape[1], columns):
                    corner = result[i : i + rows, j : j + columns].zero_()
                    for k in range(0, len(b), depth):
                        corner.addmm_(a[i : i + rows, k : k + depth], b[k : k + depth, j : j + columns])
            return result

        return run

    return {"x".join(map(str, block)): tactic(*block) for block in blocks}
