"""Solutions of the exercises in lecture 17."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


def workers_that_fit(free: int, models: list[tuple[int, int, int]], shared: bool) -> int:
    """17.1: weights once; for each worker its buffers and its scratch memory."""
    left = free - sum(weights for weights, _, _ in models)
    scratch = [needed for _, needed, _ in models]
    each = (max(scratch) if shared else sum(scratch)) + sum(buffers for _, _, buffers in models)
    return max(0, left // each)


def first_wrong(reference: dict[str, np.ndarray], tested: dict[str, np.ndarray], limit: float) -> str:
    """17.2: relative to the largest value of the reference; NaN is beyond every limit."""
    for name, right in reference.items():
        if name in tested and not np.abs(tested[name] - right).max() <= limit * np.abs(right).max():
            return name
    return ""


def halved(names: list[str], is_wrong: Callable[[str], bool]) -> str:
    """17.3: everything before `low` is right, and everything from `high` on is wrong."""
    low, high = 0, len(names)
    while low < high:
        middle = (low + high) // 2
        if is_wrong(names[middle]):
            high = middle
        else:
            low = middle + 1
    return names[low] if low < len(names) else ""
