"""Solutions of the exercises in lecture 16."""

from __future__ import annotations

import numpy as np


def bits_per_weight(code_bits: int, block: int, scale_bits: int) -> float:
    """16.1: the bits of a scale are shared by the weights of a block."""
    return code_bits + scale_bits / block


def best_fraction(block: np.ndarray, fractions: np.ndarray) -> float:
    """16.2: a smaller scale rounds most weights more finely, and clips the largest."""
    errors = []
    for fraction in fractions:
        scale = fraction * np.abs(block).max() / 7
        codes = np.clip(np.rint(block / scale), -7, 7)
        errors.append(((codes * scale - block) ** 2).mean())
    return float(fractions[int(np.argmin(errors))])


def smoothing(input_max: np.ndarray, weight_max: np.ndarray, alpha: float) -> np.ndarray:
    """16.3: at alpha 1, all of the outliers move from the inputs into the weights."""
    factors: np.ndarray = input_max**alpha / np.maximum(weight_max, 1e-5) ** (1 - alpha)
    return factors


def two_of_four(weight: np.ndarray) -> np.ndarray:
    """16.4: the two smallest magnitudes of each four neighbors become 0."""
    groups = weight.reshape(-1, 4).copy()
    np.put_along_axis(groups, np.argsort(np.abs(groups), axis=1)[:, :2], 0, axis=1)
    return groups.reshape(weight.shape)
