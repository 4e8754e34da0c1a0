"""Fresh histograms, and how far a threshold is from the right one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from course_lib.precision import Histogram, StreamingHistogram

BINS = (512, 1024)
_SIZES = (-20, 20)  # of values, as exponents
CLEAN = ("a bell", "a sharp peak", "a skewed bell")


@dataclass(frozen=True)
class Question:
    """One histogram for which a threshold is needed.

    Attributes:
        name: its special property.
        clean: whether it is smooth, without outliers, gaps, spikes or a heap of zeros.
        percent: the percentile.
    """

    name: str
    clean: bool
    histogram: Histogram
    percent: float

    def arguments(self) -> tuple[Any, ...]:
        """The arguments of the learner's function."""
        return self.histogram.counts.astype(np.int64), self.histogram.bin_width, self.percent

    def bins_off(self, threshold: float) -> float:
        """Number of bins by which `threshold` is above (negative: below) the correct one; 0 if it is less than a bin away."""
        distance = threshold / self.histogram.bin_width - self.border()
        return 0.0 if abs(distance) < 1 - 1e-6 else distance

    def border(self) -> int:
        """The bin that the threshold ends, counted from 1: its upper edge is ``border * bin_width``."""
        wanted = self.percent / 100 * self.histogram.total
        return int(np.searchsorted(np.cumsum(self.histogram.counts), wanted)) + 1


def questions(rng: np.random.Generator) -> list[Question]:
    """Fresh histograms: three clean ones, and five like those of real tensors and recordings."""
    asked = []
    sizes = rng.permutation(np.linspace(*_SIZES, 8)) + rng.uniform(0, 1, 8)
    for (name, values, percent), size in zip(_drawn(rng), sizes, strict=True):
        streaming = StreamingHistogram(name, int(rng.choice(BINS)))
        streaming.add(values * 2**size)
        asked.append(Question(name, name in CLEAN, streaming.result(), percent))
    return asked


def _drawn(rng: np.random.Generator) -> Iterator[tuple[str, np.ndarray, float]]:
    # Percentages have many digits, so none falls exactly between two values, where two bins would be right.
    many = int(rng.integers(80_000, 120_000))
    percents = rng.permutation([rng.uniform(50, 90), rng.uniform(90, 99), rng.uniform(99, 99.99)])
    yield "a bell", rng.normal(size=many), percents[0]
    yield "a sharp peak", rng.laplace(size=many), percents[1]
    yield "a skewed bell", rng.gamma(2, size=many), percents[2]
    yield "many zeros, as a Relu leaves them", np.maximum(rng.normal(size=many), 0), rng.uniform(50, 99.9)

    outlier = np.abs(rng.normal(size=many))
    outlier[0] = rng.uniform(25, 40)
    yield "one outlier far out", outlier, rng.uniform(99.9, 99.99)

    stuck = np.abs(rng.normal(size=many))
    stuck[: many // 1500] = rng.uniform(12, 20)
    yield "a group of outliers", stuck, rng.uniform(99.5, 99.9)

    yield "few values, many empty bins", rng.laplace(size=int(rng.integers(150, 250))), rng.uniform(1, 99)

    levels = rng.choice([0.0, 0.25, 0.5, 0.75, 1.0, 3.0], many, p=[0.3, 0.2, 0.2, 0.15, 0.1495, 0.0005])
    yield "a few spikes, everything to be kept", levels, 100.0
