"""Compare what an answer returned with what was expected, and show either in a message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

_SHOWN_NUMBERS = 8
_SHOWN_CHARACTERS = 120


def same(found: Any, expected: Any, tolerance: float = 1e-6) -> bool:
    """Whether two results agree: in their structure, and in each number up to a relative or absolute error of `tolerance`.

    Integers and texts must be equal. Lists and tuples are not told apart, and neither are arrays and lists of numbers.
    """
    if isinstance(expected, (bool, np.bool_)):
        return isinstance(found, (bool, np.bool_)) and bool(found) == bool(expected)
    if expected is None or isinstance(expected, (str, bytes, set, frozenset)):
        return type(found) is type(expected) and bool(found == expected)
    if isinstance(expected, Mapping):
        alike = isinstance(found, Mapping) and found.keys() == expected.keys()
        return alike and all(same(found[key], expected[key], tolerance) for key in expected)
    if isinstance(expected, Sequence) and not _numbers(expected):
        alike = isinstance(found, Sequence) and not isinstance(found, str) and len(found) == len(expected)
        return alike and all(same(one, other, tolerance) for one, other in zip(found, expected, strict=True))
    return _same_numbers(found, expected, tolerance)


def _same_numbers(found: Any, expected: Any, tolerance: float) -> bool:
    left, right = _array(found), np.asarray(expected)
    if left is None or left.shape != right.shape:
        return False
    if right.dtype.kind in "iub" and left.dtype.kind in "iub":
        return bool(np.array_equal(left, right))
    if right.dtype.kind in "iu" and tolerance <= 1e-6:  # a count that was computed in floating point
        return bool(np.array_equal(left.astype(np.float64), right.astype(np.float64)))
    return bool(np.allclose(left.astype(np.float64), right.astype(np.float64), rtol=tolerance, atol=tolerance, equal_nan=True))


def _array(value: Any) -> np.ndarray | None:
    """A number, an array, a tensor or a nested list as an array; None if it holds anything but numbers."""
    if hasattr(value, "detach"):  # a tensor of PyTorch
        value = value.detach().cpu().numpy()
    try:
        array = np.asarray(value)
    except ValueError:  # rows of different lengths
        return None
    return array if array.dtype.kind in "iufb" or array.dtype.name in ("bfloat16", "float8_e4m3fn") else None


def _numbers(value: Sequence[Any]) -> bool:
    """Whether a list is one of numbers, and may come back as an array."""
    array = None if any(item is None or isinstance(item, (str, bool)) for item in value) else _array(value)
    return array is not None and array.size > 0


def shown(value: Any) -> str:
    """A result in a few words: numbers with six digits, a long array as its shape and its first numbers."""
    if isinstance(value, (bool, np.bool_, str, bytes)) or value is None:
        text = repr(bool(value) if isinstance(value, np.bool_) else value)
    elif isinstance(value, Mapping):
        text = "{" + ", ".join(f"{key!r}: {shown(item)}" for key, item in value.items()) + "}"
    elif isinstance(value, (list, tuple)) and not _numbers(value):
        text = "[" + ", ".join(shown(item) for item in value) + "]"
    elif (array := _array(value)) is None:
        text = f"{value!r} ({type(value).__name__})"
    elif array.ndim == 0:
        text = _number(array.item())
    elif array.ndim > 1 and array.size <= _SHOWN_NUMBERS:
        text = "[" + ", ".join(shown(row) for row in array) + "]"
    elif array.ndim == 1 and array.size <= _SHOWN_NUMBERS:
        text = "[" + ", ".join(map(_number, array.tolist())) + "]"
    else:
        first = ", ".join(map(_number, array.ravel()[:3].tolist()))
        text = f"an array of shape {array.shape} that begins with {first}"
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 3]}..."


def _number(value: float) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
