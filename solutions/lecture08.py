"""Solutions of the exercises in lecture 8."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np


def add_profile(builder: Any, config: Any, ranges: dict[str, tuple[Any, Any, Any]]) -> int:
    """8.1: one profile for all inputs, and a check of what the config answers."""
    profile = builder.create_optimization_profile()
    for name, (smallest, best, largest) in ranges.items():
        profile.set_shape(name, smallest, best, largest)
    index: int = config.add_optimization_profile(profile)
    if index < 0:
        raise ValueError(f"TensorRT rejected the profile {ranges}")
    return index


def padding_share(profiles: list[tuple[int, int]], requests: list[tuple[int, int]]) -> float:
    """8.2: the first profile that holds a request serves it, at its largest shape."""
    sent = computed = 0
    for batch, sequence in requests:
        for most, longest in profiles:
            if batch <= most and sequence <= longest:
                sent, computed = sent + batch * sequence, computed + most * longest
                break
    return 1 - sent / computed


def padded_price(latency_ms: dict[int, float]) -> dict[int, float]:
    """8.3: the least time of this size and of all larger ones."""
    return {size: min(ms for other, ms in latency_ms.items() if other >= size) for size in latency_ms}


def best_limits(counts: np.ndarray, ms: np.ndarray, profiles: int) -> list[int]:
    """8.4: every choice of limits below the largest size."""
    largest = len(counts) - 1
    sizes = np.arange(len(counts))

    def cost(limits: list[int]) -> float:
        ends = np.array(limits)[np.searchsorted(limits, sizes)]
        return float((counts * ms[ends]).sum())

    choices = ([*chosen, largest] for chosen in combinations(range(1, largest), profiles - 1))
    return min(choices, key=cost)


def call_times(
    calls: list[tuple[float, int]], strategy: str, compile_ms: float, fallback_ms: float, special_ms: float
) -> list[float]:
    """8.5: for each shape, the time at which its kernel is ready."""
    ready: dict[int, float] = {}
    times = []
    for start, shape in calls:
        new = shape not in ready
        ready.setdefault(shape, start + compile_ms)
        if strategy == "eager":
            times.append(special_ms + new * compile_ms)
        elif strategy == "lazy" and start >= ready[shape]:
            times.append(special_ms)
        else:
            times.append(fallback_ms)
    return times
