"""Wrong answers to the exercises of lecture 16."""

from __future__ import annotations

import numpy as np


def _search(block, fractions, largest=lambda block: np.abs(block).max(), low=-7, high=7, result=lambda f, i, s: f[i]):
    scales = [fraction * largest(block) / 7 for fraction in fractions]
    errors = [((np.clip(np.rint(block / scale), low, high) * scale - block) ** 2).mean() for scale in scales]
    best = int(np.argmin(errors))
    return result(fractions, best, scales[best])


def _pruned(measure=np.abs, size=4, dropped=2):
    def two_of_four(weight):
        groups = weight.reshape(-1, size).copy()
        np.put_along_axis(groups, np.argsort(measure(groups), axis=1)[:, :dropped], 0, axis=1)
        return groups.reshape(weight.shape)

    return two_of_four


MISTAKES = {
    "16.1": {
        "a scale for each weight": lambda code, block, scale: code + scale,
        "integer division": lambda code, block, scale: code + scale // block,
        "of the block": lambda code, block, scale: code * block + scale,
        "upside down": lambda code, block, scale: code + block / scale,
    },
    "16.2": {
        "no clip": lambda block, fractions: _search(block, fractions, low=-99, high=99),
        "position": lambda block, fractions: _search(block, fractions, result=lambda f, i, s: i),
        "scale": lambda block, fractions: _search(block, fractions, result=lambda f, i, s: s),
        "maximum, not magnitude": lambda block, fractions: _search(block, fractions, largest=np.max),
    },
    "16.3": {
        "product": lambda i, w, alpha: i**alpha * np.maximum(w, 1e-5) ** (1 - alpha),
        "inverse": lambda i, w, alpha: np.maximum(w, 1e-5) ** (1 - alpha) / i**alpha,
        "swapped": lambda i, w, alpha: i ** (1 - alpha) / np.maximum(w, 1e-5) ** alpha,
        "division by zero": lambda i, w, alpha: i**alpha / w ** (1 - alpha),
    },
    "16.4": {
        "values": _pruned(measure=lambda groups: groups),
        "the smallest": _pruned(measure=lambda groups: -np.abs(groups)),
        "half of a row": _pruned(size=8, dropped=4),
        "one of four": _pruned(dropped=3),
    },
}
