"""Exercises of lecture 15: the size of a cache, continuous batching, sampling, and the length of a draft."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

_LLAMA = SimpleNamespace(layers=32, heads=32, kv_heads=8, head_size=128, parameters=8.03e9)  # Llama 3.1 8B
_CHANCE = np.array([0.1, 0.5, 0.15, 0.25])

ARGUMENTS = {
    "15.1": (
        (_LLAMA, 1000, 1),
        (_LLAMA, 1),
    ),
    "15.3": (
        (_CHANCE, 0.7),
        (_CHANCE, 0.4),
        (np.array([0.5, 0.25, 0.125, 0.125]), 0.5),
    ),
}
