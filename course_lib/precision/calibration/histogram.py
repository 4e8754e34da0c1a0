"""Histograms of absolute values whose size depends neither on the number of samples nor on the largest value.

Every range is a power of two, chosen from the largest value so far. For a larger value, the range doubles as often as
necessary, and pairs of bins merge. Scaling by a power of two is exact in floating point, and merging pairs is exact in
integers. The final counts therefore depend only on the values, not on their order or on chunks. The cost: the largest
value is in the upper half of the bins, so between 1024 and 2048 of 2048 bins are in use.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from course_lib.errors import CourseError

BINS = 2048  # what TensorRT's slides and NVIDIA's pytorch-quantization use
_CHUNK = 1 << 15  # values at a time: the work arrays (384 KB) stay in a core's second-level cache
_LOWEST = -100  # exponent of the smallest range; values below 2**-111 share the first bin with zero


@dataclass(frozen=True, eq=False)
class Histogram:
    """The number of occurrences of the absolute values in one tensor.

    Attributes:
        name: the tensor.
        counts: int64, shape ``(bins,)``, read-only; bin k counts values in ``[k * bin_width, (k + 1) * bin_width)``.
        bin_width: in the tensor's own unit; a power of two.
        minimum, maximum: the exact extremes of the signed values.
    """

    name: str
    counts: np.ndarray = field(repr=False)
    bin_width: float
    minimum: float
    maximum: float

    def __post_init__(self) -> None:
        self.counts.setflags(write=False)

    @property
    def amax(self) -> float:
        """The exact largest absolute value."""
        return max(abs(self.minimum), abs(self.maximum))

    @property
    def total(self) -> int:
        """Number of counted values."""
        return int(self.counts.sum())

    @property
    def used(self) -> int:
        """Number of bins from zero to the largest value."""
        return int(self.amax / self.bin_width) + 1

    @property
    def edges(self) -> np.ndarray:
        """The edges of the bins, float64, shape ``(bins + 1,)``."""
        return self.bin_width * np.arange(len(self.counts) + 1)

    @property
    def centers(self) -> np.ndarray:
        """The middle of each bin, float64, shape ``(bins,)``."""
        return self.bin_width * (np.arange(len(self.counts)) + 0.5)

    def share_above(self, threshold: float) -> float:
        """The share of values (0 to 1) above ``threshold``; the values in the threshold's own bin count as below."""
        return float(self.counts[int(threshold / self.bin_width) + 1 :].sum() / max(self.total, 1))


class StreamingHistogram:
    """Counts the absolute values of one tensor as a stream. It needs memory for ``bins`` counts.

    Args:
        name: the tensor, for error messages.
        bins: a power of two, at least 256.

    Raises:
        CourseError: an unusable number of bins.
    """

    def __init__(self, name: str, bins: int = BINS) -> None:
        self.name, self.bins = name, _checked_bins(bins)
        self._counts = np.zeros(bins, np.int64)
        self._exponent = _LOWEST  # the bins end at 2.0**exponent
        self._minimum, self._maximum = math.inf, -math.inf

    def add(self, values: np.ndarray) -> None:
        """Count ``values``: any shape, float16, float32 or float64.

        Raises:
            CourseError: another dtype, or a NaN or infinite value; nothing of this array was counted.
        """
        flat = _floats(values, self.name).reshape(-1)
        if flat.size == 0:
            return
        low, high = float(flat.min()), float(flat.max())
        _reject_non_finite(np.array([low, high]), self.name)
        self._grow(_exponent(max(high, -low)))
        self._minimum, self._maximum = min(self._minimum, low), max(self._maximum, high)
        bins_per_unit = flat.dtype.type(math.ldexp(self.bins, -self._exponent))
        scaled, index = np.empty(_CHUNK, flat.dtype), np.empty(_CHUNK, np.intp)
        for start in range(0, flat.size, _CHUNK):
            part = flat[start : start + _CHUNK]
            n = len(part)
            np.abs(np.multiply(part, bins_per_unit, out=scaled[:n]), out=scaled[:n])
            np.copyto(index[:n], scaled[:n], casting="unsafe")  # cuts toward zero
            self._counts += np.bincount(index[:n], minlength=self.bins)

    def merge(self, other: StreamingHistogram) -> None:
        """Count everything that ``other``, of as many bins, counted: the same as adding its values."""
        self._grow(other._exponent)
        self._counts += _coarsened(other._counts, self._exponent - other._exponent)
        self._minimum, self._maximum = min(self._minimum, other._minimum), max(self._maximum, other._maximum)

    def result(self) -> Histogram:
        """The histogram of absolute values so far.

        Raises:
            CourseError: nothing was added.
        """
        if self._minimum > self._maximum:
            raise CourseError(f"tensor {self.name!r}: no value was ever counted")
        width = math.ldexp(1 / self.bins, self._exponent)
        return Histogram(self.name, self._counts.copy(), width, self._minimum, self._maximum)

    def _grow(self, exponent: int) -> None:
        """Extend the range to at least this exponent."""
        if exponent > self._exponent:
            self._counts = _coarsened(self._counts, exponent - self._exponent)
            self._exponent = exponent


def _checked_bins(bins: int) -> int:
    if bins < 256 or bins & (bins - 1):
        raise CourseError(f"the number of bins must be a power of two of at least 256, got {bins}")
    return bins


def _floats(values: np.ndarray, name: str) -> np.ndarray:
    """As float32 or float64: half precision has too few bits for a bin's number."""
    if values.dtype not in (np.float16, np.float32, np.float64):
        raise CourseError(f"tensor {name!r} holds {values.dtype}: only float tensors have a range to calibrate")
    return values.astype(np.float32) if values.dtype == np.float16 else values


def _reject_non_finite(extremes: np.ndarray, name: str) -> None:
    """NaN and infinity always show in the extremes: numpy's minimum and maximum hand NaN on."""
    if not np.isfinite(extremes).all():
        what = "NaN" if np.isnan(extremes).any() else "infinite values"
        raise CourseError(f"tensor {name!r} holds {what}: look at the calibration data and at the model before it")


def _exponent(largest: float) -> int:
    """The smallest e with ``largest < 2**e``, at least the lowest."""
    return max(math.frexp(largest)[1], _LOWEST) if largest > 0 else _LOWEST


def _coarsened(counts: np.ndarray, doublings: int) -> np.ndarray:
    """Counts after `doublings` doublings of the range: ``2**doublings`` neighbors merge, and the other bins are empty."""
    if doublings == 0:
        return counts
    merged = counts.reshape(-1, min(1 << min(doublings, 62), len(counts))).sum(1)
    return np.concatenate([merged, np.zeros(len(counts) - len(merged), np.int64)])
