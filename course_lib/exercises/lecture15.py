"""Exercises of lecture 15: the size of a cache, continuous batching, sampling, and the length of a draft."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from course_lib.exercises.exercise import Case

_LLAMA = SimpleNamespace(layers=32, heads=32, kv_heads=8, head_size=128, parameters=8.03e9)  # Llama 3.1 8B
_CHANCE = np.array([0.1, 0.5, 0.15, 0.25])

ARGUMENTS = {
    "15.1": (
        (_LLAMA, 1000, 1),
        (_LLAMA, 1),
    )
}
CASES = {
    "15.3": (
        Case(
            (_CHANCE, 0.7),
            np.array([0, 2 / 3, 0, 1 / 3]),
            {
                "The kept probabilities must sum to 1: divide them by their sum.": np.array([0, 0.5, 0, 0.25]),
                "You dropped the token that reaches `p`. Without it the sum is below `p`.": np.array([0, 1, 0, 0]),
                "Your result is sorted. Entry i must belong to token i.": np.array([2 / 3, 1 / 3, 0, 0]),
                "You kept every token. `np.argsort` puts the least likely token first: reverse it.": _CHANCE,
                "You compared each probability with `p`. Top-p compares their running sum.": np.zeros(4),
            },
        ),
        Case(
            (_CHANCE, 0.4),
            np.array([0, 1.0, 0, 0]),
            {
                "The first token alone exceeds `p`, and you dropped it: at least one token must remain.": np.full(4, np.nan),
                "The first token alone exceeds `p`: the second is not needed.": np.array([0, 2 / 3, 0, 1 / 3]),
            },
        ),
        Case(
            (np.array([0.5, 0.25, 0.125, 0.125]), 0.5),
            np.array([1.0, 0, 0, 0]),
            {
                "The first token reaches `p` exactly, which is enough: compare with `<`, not `<=`.": np.array(
                    [2 / 3, 1 / 3, 0, 0]
                )
            },
        ),
    )
}
