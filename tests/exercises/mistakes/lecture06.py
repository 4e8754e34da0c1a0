"""Wrong answers to the exercises of lecture 6."""

from __future__ import annotations

import numpy as np


def _affine(low, high, steps=255, extend=True, first=0, code=round):
    if extend:
        low, high = min(low, 0), max(high, 0)
    scale = (high - low) / steps
    return scale, code(-low / scale) + first


def _weight(weight, axes=(1, 2, 3), steps=127, code=np.rint, kind=np.int8, zero=True):
    largest = np.abs(weight).max(axes, keepdims=True)
    scales = largest / steps
    if zero:
        scales = np.where(largest > 0, scales, 1.0)
    return code(weight / scales).astype(kind), scales.ravel()


def _percentile(counts, width, percent, edge=1.0, reached=np.greater_equal):
    return (reached(counts.cumsum(), percent / 100 * counts.sum()).argmax() + edge) * width


def _ratio(exact, found):
    return (exact**2).sum() / ((exact - found) ** 2).sum()


MISTAKES = {
    "6.1": {
        "256 steps": lambda low, high: _affine(low, high, steps=256),
        "symmetric": lambda low, high: (max(abs(low), abs(high)) / 127, 0),
        "signed": lambda low, high: _affine(low, high, first=-128),
        "rounded down": lambda low, high: _affine(low, high, code=int),
        "0 not in the range": lambda low, high: _affine(low, high, extend=False),
    },
    "6.2": {
        "per tensor": lambda weight: _weight(weight, axes=(0, 1, 2, 3)),
        "per input": lambda weight: _weight(weight, axes=(0, 2, 3)),
        "128": lambda weight: _weight(weight, steps=128),
        "cut off": lambda weight: _weight(weight, code=np.trunc),
        "not converted": lambda weight: _weight(weight, kind=np.float32),
        "an empty filter": lambda weight: _weight(weight, zero=False),
        "codes only": lambda weight: _weight(weight)[0],
    },
    "6.3": {
        "lower edge": lambda counts, width, percent: _percentile(counts, width, percent, edge=0),
        "middle": lambda counts, width, percent: _percentile(counts, width, percent, edge=0.5),
        "more than": lambda counts, width, percent: _percentile(counts, width, percent, reached=np.greater),
        "share of the range": lambda counts, width, percent: percent / 100 * len(counts) * width,
        "no width": lambda counts, width, percent: _percentile(counts, 1.0, percent),
    },
    "6.4": {
        "ratio": _ratio,
        "sign": lambda exact, found: -10 * np.log10(_ratio(exact, found)),
        "20": lambda exact, found: 20 * np.log10(_ratio(exact, found)),
        "natural": lambda exact, found: 10 * np.log(_ratio(exact, found)),
        "bel": lambda exact, found: np.log10(_ratio(exact, found)),
    },
}
