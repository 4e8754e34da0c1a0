"""The error of an array relative to a reference. Each figure is computed in float64 over all elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike


def relative_error(want: ArrayLike, have: ArrayLike) -> float:
    """The norm of the error divided by the norm of the reference, ``|have - want| / |want|``: 0.01 means "1 % off".

    Args:
        want: the reference, finite numbers of any shape.
        have: the same shape.

    Returns:
        0 for equal arrays; infinity if `have` holds NaN or infinity, or if `want` is zero and `have` is not.

    Raises:
        ValueError: the shapes differ, or the reference is not finite.
    """
    want, have = _pair(want, have)
    if not np.isfinite(have).all():
        return math.inf
    error = _length(have - want)
    if error == 0:
        return 0.0
    truth = _length(want)
    return error / truth if truth > 0 else math.inf


def sqnr_db(want: ArrayLike, have: ArrayLike) -> float:
    """Signal-to-quantization-noise ratio in decibels, the power of `want` over the power of the error; higher is better.

    It is `relative_error` on another scale: 20 dB are 10 %, 40 dB are 1 %, and each additional bit of an integer adds about 6 dB.

    Returns:
        Infinity for equal arrays, minus infinity if `relative_error` is infinite.

    Raises:
        ValueError: as in `relative_error`.
    """
    return decibels(relative_error(want, have))


def decibels(error: float) -> float:
    """A relative error as SQNR in dB."""
    return -20 * math.log10(error) if 0 < error < math.inf else (math.inf if error == 0 else -math.inf)


def argmax_agreement(want: ArrayLike, have: ArrayLike) -> float:
    """The share of rows, along the last axis, whose largest element has the same index.

    A row of `have` with NaN or infinity counts as a miss, because its answer cannot be trusted.

    Args:
        want: the reference, one or more dimensions.
        have: the same shape.

    Raises:
        ValueError: as in `relative_error`, or the arrays have no rows.
    """
    want, have = _pair(want, have)
    if want.ndim == 0 or want.size == 0:
        raise ValueError(f"need at least one row to find the largest element of, got shape {want.shape}")
    same = (want.argmax(-1) == have.argmax(-1)) & np.isfinite(have).all(-1)
    return float(np.mean(same))


def _pair(want: ArrayLike, have: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    want, have = np.asarray(want, np.float64), np.asarray(have, np.float64)
    if want.shape != have.shape:
        raise ValueError(f"need two arrays of one shape, got {want.shape} and {have.shape}")
    if not np.isfinite(want).all():
        raise ValueError("the reference holds NaN or infinity: nothing can be measured against it")
    return want, have


def _length(array: np.ndarray) -> float:
    largest = float(np.abs(array).max(initial=0))  # scaled by it, squares can neither overflow nor vanish
    return largest * float(np.sqrt(np.square(array / largest).sum())) if largest > 0 else 0.0


@dataclass(frozen=True)
class Deviation:
    """The error of a model's outputs relative to the float32 outputs, over all batches. Of several outputs, the worst one counts.

    Attributes:
        relative_error: see `relative_error`; infinite if any value is not finite.
        max_abs_error: the largest difference, in the unit of the outputs; also infinite if any value is not finite.
        argmax_changes: the share of rows, from 0 to 1, whose largest element moved. For a classifier, these are changed answers.
        nonfinite: number of output values that became NaN or infinite, over all outputs.
    """

    relative_error: float
    max_abs_error: float
    argmax_changes: float
    nonfinite: int

    @property
    def sqnr_db(self) -> float:
        """`relative_error` in decibels."""
        return decibels(self.relative_error)


def deviation(want: Sequence[Sequence[np.ndarray]], have: Sequence[Sequence[np.ndarray]]) -> Deviation:
    """Compare the outputs of two models.

    Args:
        want, have: for each batch, the float outputs in one order, of any shape. The reference is finite.

    Raises:
        ValueError: as in `relative_error`.
    """
    errors, largest, changes, nonfinite = [], [], [], 0
    for wants, haves in zip(zip(*want, strict=True), zip(*have, strict=True), strict=True):  # one output, all batches
        flat_want, flat_have = (np.concatenate([np.ravel(array) for array in arrays]) for arrays in (wants, haves))
        lost = int(np.count_nonzero(~np.isfinite(flat_have)))
        nonfinite += lost
        errors.append(relative_error(flat_want, flat_have))
        largest.append(math.inf if lost else float(np.abs(flat_want.astype(np.float64) - flat_have).max(initial=0)))
        rows = [max(1, array.size // max(1, array.shape[-1])) if array.ndim else 1 for array in wants]
        agreements = [argmax_agreement(np.atleast_1d(w), np.atleast_1d(h)) for w, h in zip(wants, haves, strict=True)]
        changes.append(1 - float(np.average(agreements, weights=rows)))
    return Deviation(max(errors), max(largest), max(changes), nonfinite)
