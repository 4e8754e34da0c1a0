"""Exercises of lecture 16: bits with their scales, a scale search, and smoothing."""

from __future__ import annotations

import numpy as np

from course_lib.exercises.exercise import Case

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
    "16.4": ((_ROWS,),),
}
CASES = {
    "16.3": (
        Case(
            (_INPUT_MAX, _WEIGHT_MAX, 0.5),
            np.array([77.45966692, 1.41421356]),
            {
                "You multiplied the two maxima. A channel with large inputs and small weights needs the largest factor.": np.array(
                    [0.77459667, 0.70710678]
                ),
                "That is the inverse: inputs are divided by the factor, so a large input needs a large factor.": np.array(
                    [0.01290994, 0.70710678]
                ),
                "You divided the maxima and used no exponent. That moves the whole problem into the weights.": np.array(
                    [6000.0, 2.0]
                ),
            },
        ),
        Case(
            (_INPUT_MAX, _WEIGHT_MAX, 0.75),
            np.array([68.17316198, 1.18920712]),
            {
                "The exponents are swapped: alpha belongs to the inputs.": np.array([88.01117368, 1.68179283]),
                "Both exponents are alpha. At alpha 0.5 this is the same, at 0.75 it is not.": np.array(
                    [681.7316198, 1.68179283]
                ),
            },
        ),
        Case(
            (_INPUT_MAX, np.zeros(2), 0.5),
            np.array([2449.48974278, 316.22776602]),
            {
                "A channel has zero weights, and you divide by them: use at least 1e-5 for `weight_max`.": np.array(
                    [np.inf, np.inf]
                ),
            },
            tolerance=1e-3,
        ),
    )
}
