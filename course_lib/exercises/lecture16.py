"""Exercises of lecture 16: bits with their scales, a scale search, and smoothing."""

from __future__ import annotations

import numpy as np

_TRIED = np.linspace(0.5, 1, 11)
_BLOCK = np.array([0.5] * 7 + [1.0])
_INPUT_MAX, _WEIGHT_MAX = np.array([60.0, 1.0]), np.array([0.01, 0.5])

_ROWS = np.array([[0.1, -3.0, 2.0, 0.5, 5.0, 4.0, 7.0, 6.0], [9.0, 8.0, 7.0, 6.0, 1.0, 2.0, -4.0, 3.0]])

ARGUMENTS = {
    "16.2": (
        (_BLOCK, _TRIED),
        (-_BLOCK, _TRIED),
        (np.arange(-7, 8) / 7, np.array([0.5, 1.0])),
    ),
    "16.3": (
        (_INPUT_MAX, _WEIGHT_MAX, 0.5),
        (_INPUT_MAX, _WEIGHT_MAX, 0.75),
        (_INPUT_MAX, np.zeros(2), 0.5),
    ),
    "16.4": ((_ROWS,),),
}
