"""Exercises of lecture 5: rounding by hand, arithmetic within FP16, the nodes to keep in FP32, and what AutoCast missed."""

from __future__ import annotations

from typing import Any

import numpy as np

from course_lib.exercises.comparing import shown
from course_lib.exercises.exercise import Answer, NotYet


class _Watched(np.ndarray):
    """An array that remembers whether arithmetic on it, or on a result of it, was done in more than 16 bits."""

    wide = False

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **keywords: Any) -> Any:
        plain = [each.view(np.ndarray) if isinstance(each, _Watched) else each for each in inputs]
        _Watched.wide |= any(np.ndim(each) > 0 and each.dtype.kind == "f" and each.dtype.itemsize > 2 for each in plain)
        if "out" in keywords:
            keywords["out"] = tuple(each.view(np.ndarray) if isinstance(each, _Watched) else each for each in keywords["out"])
        result = getattr(ufunc, method)(*plain, **keywords)
        return result.view(_Watched) if isinstance(result, np.ndarray) else result


def _examine_rms(called: Answer) -> None:
    for values, expected, mistakes in _RMS:
        watched = np.array(values, np.float16).view(_Watched)
        watched.flags.writeable = False
        _Watched.wide = False
        found = called(watched)
        found = np.asarray(found).item() if np.ndim(found) == 0 else np.asarray(found)
        what = f"`rms({values})` returned {shown(found)}, expected about {expected:g}."
        if not _close(found, expected):
            hint = next((words for words, returned in mistakes.items() if _close(found, returned)), "")
            raise NotYet(f"{what} {hint or 'Print the array after each step, and look for inf, 0 and nan.'}")
        if _Watched.wide:
            raise NotYet(f"{what} The value is right, but you computed in 32 or 64 bits. Stay in float16, as the kernel would.")


def _close(found: Any, expected: float) -> bool:
    """Up to four roundings in FP16."""
    return np.ndim(found) == 0 and bool(np.isclose(found, expected, rtol=4e-3, atol=0, equal_nan=True))


_RMS = (
    (
        [3, 4],
        3.5355,
        {
            "That is the root of the sum. Divide by the number of values before the root.": 5.0,
            "That is the mean of the squares. Take the root.": 12.5,
            "That is the mean magnitude. Square the values before the mean.": 3.5,
            "You returned the array that is left after the division. Multiply the root by the largest magnitude again.": 0.8839,
        },
    ),
    (
        [300, -300, 300, -300],
        300.0,
        {"300 squared is 90,000, which FP16 cannot represent. Divide by the largest magnitude before you square.": np.inf},
    ),
    (
        [1e-4, -1e-4],
        1e-4,
        {
            "The square of 1e-4 is below the smallest FP16 number, so it became 0. A fixed divisor does not fit every input.": 0.0
        },
    ),
    (
        [-30000, 100, 100],
        17320.5,
        {"The largest value is 100, but the largest magnitude is 30,000: use `np.abs`.": np.inf},
    ),
    ([0, 0, 0], 0.0, {"The largest magnitude is 0 here, and 0 / 0 is not a number: treat this case first.": np.nan}),
)

_NODES = [
    ("/Sub", ("pixels", "mean"), "centered"),
    ("/Mul", ("centered", "centered"), "square"),
    ("/ReduceMean_1", ("square",), "variance"),
    ("/Sqrt", ("variance",), "deviation"),
    ("/Div", ("centered", "deviation"), "normalized"),
    ("/Conv", ("normalized",), "logits"),
]
_TENSORS = ("pixels", "mean", "centered", "square", "variance", "deviation", "normalized", "logits")
_LARGEST, _RANDOM, _EIGHT_BITS = (
    dict(zip(_TENSORS, sizes, strict=True))
    for sizes in (
        (4095.0, 1900.0, 4000.0, 1.6e7, 2.1e6, 1450.0, 4.0, 20.0),
        (4.0, 0.1, 4.0, 16.0, 1.2, 1.1, 4.0, 20.0),
        (255.0, 120.0, 250.0, 6.2e4, 8200.0, 90.0, 4.0, 20.0),
    )
)
_EPSILON = [("/Add", ("variance", "eps"), "sum"), ("/Relu", ("sum",), "relu"), ("/Zero", ("relu", "zero"), "y")]
_SMALL = {"variance": 1.0, "eps": 1e-12, "sum": 1.0, "relu": 65504.0, "zero": 0.0, "y": 65504.0}

EXAMINATIONS = {"5.2": _examine_rms}
ARGUMENTS = {
    "5.3": (
        (_NODES, _LARGEST),
        (_EPSILON, _SMALL),
    ),
    "5.4": (
        (_NODES, _RANDOM, _LARGEST),
        (_NODES, _EIGHT_BITS, _LARGEST),
        (_NODES, _EIGHT_BITS, _LARGEST, 65504),
    ),
}
