"""Solutions of the exercises in lecture 11."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


def median_ms(call: Callable[[], object], clock: Callable[[], float], warmup: int, calls: int) -> float:
    """11.1: warm up, then keep every latency."""
    for _ in range(warmup):
        call()
    latencies = []
    for _ in range(calls):
        started = clock()
        call()
        latencies.append(1e3 * (clock() - started))
    return float(np.median(latencies))


def interleaved_speedup(time_a: Callable[[], float], time_b: Callable[[], float], rounds: int) -> float:
    """11.2: one ratio for each round."""
    return float(np.median([time_a() / time_b() for _ in range(rounds)]))


def block_interval(ratios: np.ndarray, starts: np.ndarray, block: int) -> tuple[float, float]:
    """11.3: blocks of neighbors, which wrap around the end."""
    picked = (starts[:, :, None] + np.arange(block)) % len(ratios)
    resamples = ratios[picked.reshape(len(starts), -1)[:, : len(ratios)]]
    low, high = np.percentile(np.median(resamples, axis=1), [2.5, 97.5])
    return float(low), float(high)


def decision(low: float, high: float, threshold: float) -> str:
    """11.4: the whole interval has to be on one side."""
    if low >= threshold:
        return "reached"
    return "missed" if high < threshold else "undecided"


def response_times(gaps_ms: list[float], calls_ms: list[float]) -> list[float]:
    """11.5: Lindley's formula."""
    found: list[float] = []
    for gap, call in zip(gaps_ms, calls_ms, strict=True):
        waits = max(0.0, found[-1] - gap) if found else 0.0
        found.append(waits + call)
    return found
