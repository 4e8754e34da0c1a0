"""Solutions of the exercises in lecture 15."""

from __future__ import annotations

from typing import Any

import numpy as np


def cache_bytes(size: Any, tokens: int, bytes_per_number: int = 2) -> int:
    """15.1: a key and a value for each layer, KV head, feature and token."""
    per_token = 2 * size.layers * size.kv_heads * size.head_size
    return int(per_token * tokens * bytes_per_number)


def continuous_steps(answers: list[int], slots: int) -> int:
    """15.2: each answer, in order, goes to the batch slot that is free first."""
    free_at = [0] * slots
    for answer in answers:
        slot = free_at.index(min(free_at))
        free_at[slot] += answer
    return max(free_at)


def top_p(chance: np.ndarray, p: float) -> np.ndarray:
    """15.3: a token remains if the tokens that are more likely sum to less than `p`."""
    order = np.argsort(chance)[::-1]
    before = np.cumsum(chance[order]) - chance[order]
    kept = np.zeros_like(chance)
    kept[order[before < p]] = chance[order[before < p]]
    return kept / kept.sum()


def best_draft(p: float, draft_cost: float, longest: int) -> int:
    """15.4: tokens of a check, over its time; with k = 0 the speed is that of decode."""

    def speed(k: int) -> float:
        return sum(p**i for i in range(k + 1)) / (1 + draft_cost * k)

    return max(range(longest + 1), key=speed)
