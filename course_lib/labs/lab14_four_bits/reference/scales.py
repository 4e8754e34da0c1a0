"""The search for the scale of each block."""

import numpy as np


def search(weight: np.ndarray, block: int, importance: np.ndarray) -> np.ndarray:
    """For each block the scale with the smallest weighted squared error, ``(out, in / block)``, of a weight ``(out, in)``."""
    parts = weight.reshape(len(weight), -1, block)
    matters = importance.reshape(1, -1, block)
    largest = np.abs(parts).max(-1, keepdims=True) / 7
    best = np.full(largest.shape, np.inf)
    scales = np.ones_like(largest)  # of a block of zeros
    for fraction in np.linspace(0.3, 1.0, 71):
        # as the file stores it; a scale of zero would divide by zero
        scale = np.maximum((fraction * largest).astype(np.float16), np.float16(2.0**-24)).astype(np.float32)
        codes = np.clip(np.rint(parts / scale), -7, 7)
        errors = (matters * (codes * scale - parts) ** 2).sum(-1, keepdims=True)
        better = (errors < best) & (largest > 0)
        best[better], scales[better] = errors[better], scale[better]
    return np.asarray(scales[..., 0])
