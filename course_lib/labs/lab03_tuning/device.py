"""A simulated GPU for lab 03: each run of a tactic gives a time with noise. Nothing here reads a clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

RUNS_EACH = 15  # of the budget, for each tactic
_TACTICS, _SPREAD = 10, 0.003
_MOST_EQUALLY_FAST = 5  # of the tactics of a layer, and at least 1
_NEXT, _CLOSE = 1.05, 2  # times the best: the fastest of the other tactics; so many others are hardly slower than that
_NOISE, _OUTLIERS = 0.006, 0.04
_WARM_UP_RUNS = 8  # until the clock of the device has risen
_WORDS = ("gemm", "fprop", "wgmma", "splitk", "streamk", "winograd")


class Device:
    """Runs tactics. Some runs are slower than the tactic is:

    - the first run of each tactic, which loads its code;
    - the first runs of all, until the clock has risen;
    - a few runs at any time, which an interrupt disturbs;
    - runs in a row, while another program uses the GPU.
    """

    def __init__(self, true_ms: Mapping[str, float], rng: np.random.Generator) -> None:
        """A device on which each tactic takes `true_ms`, and whose noise comes from `rng`."""
        self.true_ms = dict(true_ms)
        self.runs: list[str] = []  # the tactics in the order of their runs
        self.budget = RUNS_EACH * len(true_ms)
        self._rng = rng
        self._loading = {name: rng.uniform(1.5, 4) for name in true_ms}
        length = int(rng.uniform(0.1, 0.16) * self.budget)
        begins = int(rng.integers(2 * len(true_ms), self.budget - length))
        self._busy = range(begins, begins + length)
        self._slower = rng.uniform(1.25, 1.5)

    def run(self, name: str) -> float:
        """Milliseconds of one run."""
        ms = self.true_ms[name] * float(np.exp(_NOISE * self._rng.standard_normal()))
        if self._rng.random() < _OUTLIERS:
            ms *= self._rng.uniform(1.3, 3)
        if name not in self.runs:
            ms *= self._loading[name]
        number = len(self.runs)
        ms *= 1 + 0.5 * float(np.exp(-number / _WARM_UP_RUNS))
        if number in self._busy:
            ms *= self._slower
        self.runs.append(name)
        return float(ms)


@dataclass(frozen=True)
class Problem:
    """The tactics of one layer.

    Attributes:
        true_ms: by tactic. One to five of them are equally fast, and all others are at least 5 % slower.
    """

    true_ms: Mapping[str, float]

    @property
    def best_ms(self) -> float:
        """The time of the fastest tactic."""
        return min(self.true_ms.values())

    def listed(self, rng: np.random.Generator) -> list[str]:
        """The names in an order that another build does not have."""
        return [str(name) for name in rng.permutation(sorted(self.true_ms))]


def problem(best_ms: float, rng: np.random.Generator) -> Problem:
    """A layer whose fastest tactic takes `best_ms`."""
    names = [f"{rng.choice(_WORDS)}_{number}" for number in rng.choice(np.arange(100, 1000), _TACTICS, replace=False)]
    equal = int(rng.integers(1, _MOST_EQUALLY_FAST + 1))
    times = [best_ms, *(best_ms * (1 + rng.uniform(0, _SPREAD, equal - 1)))]
    times += [*(best_ms * rng.uniform(_NEXT, 1.7, _TACTICS - equal - _CLOSE))]
    # The first and the last name belong to tactics that only a tolerance that is too wide takes for equally fast.
    close = best_ms * rng.uniform(_NEXT, _NEXT + 0.01, _CLOSE)
    first, *inner, last = sorted(names)
    times_by_name = {first: close[0], **dict(zip(rng.permutation(inner), times, strict=True)), last: close[1]}
    return Problem({str(name): float(ms) for name, ms in times_by_name.items()})
