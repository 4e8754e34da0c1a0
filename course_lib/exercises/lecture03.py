"""Exercises of lecture 3: memory traffic of fused kernels, folding a norm, and what an epilogue can compute."""

from __future__ import annotations

import numpy as np

from course_lib.exercises.exercise import Case

_WEIGHT = np.array([[1.0, 2.0], [3.0, 4.0]])
_BIAS = np.array([10.0, 20.0])
_SCALE = np.array([2.0, 10.0])
_SHIFT = np.array([1.0, -1.0])

CASES = {
    "3.2": (
        Case(
            (_WEIGHT, _BIAS, _SCALE, _SHIFT),
            (np.array([[2.0, 20.0], [6.0, 40.0]]), np.array([9.0, 19.0])),
            {
                "You scaled the rows. A row belongs to an output, but the norm scales the inputs, which are the columns.": (
                    np.array([[2.0, 4.0], [30.0, 40.0]]),
                    np.array([9.0, 19.0]),
                ),
                "You multiplied the shift by the scaled weight. The shift is added after the scale, so it meets the original weight.": (
                    np.array([[2.0, 20.0], [6.0, 40.0]]),
                    np.array([-8.0, -14.0]),
                ),
                "The bias does not change, although the shift passes through the weight: each output gets a constant.": (
                    np.array([[2.0, 20.0], [6.0, 40.0]]),
                    _BIAS,
                ),
                "You added the shift to the bias. The layer multiplies it by the weight first.": (
                    np.array([[2.0, 20.0], [6.0, 40.0]]),
                    np.array([11.0, 19.0]),
                ),
                "You used the transposed weight for the shift. Output i gets the sum of row i times the shift.": (
                    np.array([[2.0, 20.0], [6.0, 40.0]]),
                    np.array([8.0, 18.0]),
                ),
            },
            shown="fold_before([[1, 2], [3, 4]], [10, 20], [2, 10], [1, -1])",
        ),
    )
}
