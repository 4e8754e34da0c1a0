"""The best three profiles for a traffic, with which the judge compares a submission. The cost of each choice uses measured latencies."""

from __future__ import annotations

import numpy as np

from course_lib.labs.lab07_dynamic_shapes.service import Box
from course_lib.labs.lab07_dynamic_shapes.traffic import LARGEST

MOST = 3  # profiles that the service has memory for
CANDIDATES = tuple((b, s) for b in range(1, 17) for s in range(4, 129, 4))


def cheapest(latency_ms: np.ndarray, counts: np.ndarray) -> tuple[Box, ...]:
    """At most three boxes, cheapest first. One of them holds everything, and no other choice among `CANDIDATES` costs less.

    Args:
        latency_ms: latency of every shape, ``(16, 128)``.
        counts: number of occurrences of each shape, ``(16, 128)``.

    The function computes the cost of all pairs at once. A shape goes to the cheapest box that holds it. Of a pair i, j, the cheaper
    box takes all its shapes, and the other box takes its shapes that are left. Shapes in both are those in the box with the
    smaller sides. The full box takes the rest.
    """
    inside = counts.cumsum(axis=0).cumsum(axis=1)  # [b - 1, s - 1]: how many the box (b, s) holds
    index = np.array(CANDIDATES) - 1
    price = latency_ms[index[:, 0], index[:, 1]]
    held = inside[index[:, 0], index[:, 1]]
    order = np.argsort(price, kind="stable")
    index, price, held = index[order], price[order], held[order]
    both = np.minimum(index[:, None], index[None, :])
    shared = inside[both[..., 0], both[..., 1]]
    rest = held[None, :] - shared  # of j, the more expensive one
    cost = price[:, None] * held[:, None] + price[None, :] * rest + latency_ms[-1, -1] * (counts.sum() - held[:, None] - rest)
    cost = np.where(np.tri(len(price), dtype=bool).T, cost, np.inf)  # i costs at most as much as j
    i, j = np.unravel_index(np.argmin(cost), cost.shape)
    chosen = {(int(b) + 1, int(s) + 1): None for b, s in (index[i], index[j])}
    return tuple(chosen | {LARGEST: None})


def by_tokens(fixed: float = 60.0) -> np.ndarray:
    """An estimate of every shape's latency, ``(16, 128)``: proportional to its tokens, plus a fixed cost equal to `fixed` tokens."""
    texts, tokens = np.indices(LARGEST) + 1
    return fixed + texts * tokens.astype(float)
