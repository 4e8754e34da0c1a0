"""Latencies, paired speed ratios and their uncertainty."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from course_lib.engines.cuda.two_clocks import timed_ms as timed_ms

_RESAMPLES = 1000
_MOST_PARTS = 200  # of a series of any length, so that its interval takes little memory
Clock = Callable[[Callable[[], object]], float]  # runs a call and says how many milliseconds it took


@dataclass(frozen=True)
class Interval:
    """A ratio with its confidence interval, all dimensionless (2.0 = twice as fast)."""

    median: float
    low: float
    high: float

    def excludes(self, threshold: float) -> bool:
        """Whether the whole interval lies on one side of `threshold`."""
        return not self.low <= threshold <= self.high

    @property
    def half_width(self) -> float:
        """Half the interval's width relative to the median: 0.05 means "plus or minus 5 %"."""
        return (self.high - self.low) / (2 * self.median)

    def __str__(self) -> str:
        return f"{self.median:.2f}x [{self.low:.2f}-{self.high:.2f}]"


@dataclass(frozen=True)
class Measurement:
    """Latencies of one subject in milliseconds, shape ``(n,)``, in the order in which they were taken."""

    latencies_ms: np.ndarray = field(repr=False)

    @property
    def median_ms(self) -> float:
        """Median latency in milliseconds."""
        return float(np.median(self.latencies_ms))

    def percentile_ms(self, q: float) -> float:
        """Latency below which `q` percent of the calls stayed."""
        return float(np.percentile(self.latencies_ms, q))


def speedup(baseline_ms: np.ndarray, candidate_ms: np.ndarray, *, level: float = 0.95, seed: int | None = None) -> Interval:
    """Bootstrap interval of the median paired ratio ``baseline / candidate``.

    The two times of a pair were measured one directly after the other, so drift of the machine affects both and cancels in the
    ratio. Other disturbances last for several pairs (another process runs for a while), so neighboring pairs are not
    independent. The bootstrap therefore resamples blocks of about sqrt(n) neighbors instead of single pairs. Otherwise the
    interval would be too narrow.

    Args:
        baseline_ms, candidate_ms: latencies in milliseconds, shape ``(n,)``, paired by index, n >= 10.
        level: coverage of the interval.
        seed: for a reproducible interval; None draws one from the operating system.

    Raises:
        ValueError: shapes differ, fewer than 10 pairs, or a latency that is not positive.

    Source: Efron and Tibshirani, An Introduction to the Bootstrap (1993), percentile interval, ch. 13; moving blocks: Kunsch
    (1989), The Jackknife and the Bootstrap for General Stationary Observations.
    """
    _check_pairs(baseline_ms, candidate_ms)
    ratios = baseline_ms / candidate_ms
    return _interval(float(np.median(ratios)), np.median(ratios[resampled(len(ratios), seed)], axis=1), level)


def total_speedup(baseline_ms: np.ndarray, candidate_ms: np.ndarray, *, seed: int | None = None) -> Interval:
    """As `speedup`, for the ratio of the total times. A minority of slow calls does not move the median, but it moves this ratio."""
    _check_pairs(baseline_ms, candidate_ms)
    picked = resampled(len(baseline_ms), seed)
    ratios = baseline_ms[picked].sum(axis=1) / candidate_ms[picked].sum(axis=1)
    return _interval(float(baseline_ms.sum() / candidate_ms.sum()), ratios)


def median_interval(latencies_ms: np.ndarray, *, seed: int | None = None) -> Interval:
    """Bootstrap interval of the median of one series, in its unit. The resampled blocks are as in `speedup`.

    A long series is first divided into neighbors, whose medians are resampled.

    Args:
        latencies_ms: in the order in which they were measured, shape ``(n,)``, n >= 10.
        seed: as in `speedup`.

    Raises:
        ValueError: the series is shorter.
    """
    if latencies_ms.ndim != 1 or len(latencies_ms) < 10:
        raise ValueError(f"need a series of length >= 10, got shape {latencies_ms.shape}")
    medians = np.array([np.median(part) for part in np.array_split(latencies_ms, min(len(latencies_ms), _MOST_PARTS))])
    picked = resampled(len(medians), seed)
    return _interval(float(np.median(latencies_ms)), np.median(medians[picked], axis=1))


def _check_pairs(baseline_ms: np.ndarray, candidate_ms: np.ndarray) -> None:
    if baseline_ms.shape != candidate_ms.shape or baseline_ms.ndim != 1 or len(baseline_ms) < 10:
        raise ValueError(f"need two series of the same length >= 10, got shapes {baseline_ms.shape} and {candidate_ms.shape}")
    if min(baseline_ms.min(), candidate_ms.min()) <= 0:
        raise ValueError("a latency of 0 ms or less was recorded: the clock is too coarse or the call did nothing")


def resampled(n: int, seed: int | None, resamples: int = _RESAMPLES) -> np.ndarray:
    """Indices of the values in each resample of the moving-block bootstrap, ``(resamples, n)``."""
    block = max(1, math.isqrt(n))
    starts = np.random.default_rng(seed).integers(0, n, size=(resamples, math.ceil(n / block)))
    picked = (starts[:, :, None] + np.arange(block)) % n  # blocks wrap around the end, so that every pair is equally likely
    return picked.reshape(resamples, -1)[:, :n]


def _interval(found: float, resampled: np.ndarray, level: float = 0.95) -> Interval:
    tail = 100 * (1 - level) / 2
    low, high = np.percentile(resampled, [tail, 100 - tail])
    return Interval(found, float(low), float(high))


def measure(call: Callable[[], object], *, seconds: float = 1.0, warmup: int = 5, clock: Clock = timed_ms) -> Measurement:
    """Latencies of `call`, for at least `seconds` and at least 10 calls after `warmup` calls.

    By default, the clock is this process's wall clock, and `call` must not return before its work is done. On a GPU it must
    synchronize, otherwise only the launch is timed. With ``clock=DeviceClock()``, the GPU's clock is used, and `call` only enqueues.
    """
    for _ in range(warmup):
        call()
    latencies: list[float] = []
    end = time.perf_counter() + seconds
    while len(latencies) < 10 or time.perf_counter() < end:
        latencies.append(clock(call))
    return Measurement(np.array(latencies))
