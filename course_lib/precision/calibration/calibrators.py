"""From a histogram to one number: the largest absolute value that INT8 must still represent, called amax or threshold.

Symmetric INT8 has 127 steps on either side of zero, so a tensor with threshold t is stored in steps of ``t / 127``, and
values beyond t are clipped to it. A large threshold makes every step coarse; a small one clips. Each calibrator here uses
another rule for this trade-off.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np

from course_lib.errors import CourseError
from course_lib.precision.calibration.histogram import Histogram

LEVELS = 128  # non-negative values of a signed byte: 0 to 127
UNSEEN = 1e-4  # count given to a bin that Q leaves empty; MXNet and ONNX Runtime use the same figure


class Calibrator(Protocol):
    """A rule that picks a threshold."""

    def threshold(self, histogram: Histogram) -> float:
        """The largest absolute value to represent, in the tensor's unit: at most ``histogram.amax``, and 0 only if all
        values were zero."""
        ...


@runtime_checkable
class SearchingCalibrator(Calibrator, Protocol):
    """A rule that scores many candidates and takes the one with the lowest score."""

    score_label: ClassVar[str]

    def curve(self, histogram: Histogram) -> tuple[np.ndarray, np.ndarray]:
        """The candidate thresholds, rising, and the score of each; both float64 of the same shape ``(n,)``."""
        ...


@dataclass(frozen=True)
class MinMaxCalibrator:
    """Clips nothing: the threshold is the largest absolute value. One outlier makes every step coarse."""

    def threshold(self, histogram: Histogram) -> float:
        """See `Calibrator.threshold`."""
        return histogram.amax


@dataclass(frozen=True)
class PercentileCalibrator:
    """Clips a fixed share: ``percentile`` percent of the absolute values lie at or below the threshold.

    The threshold is a bin's upper edge, so that it exceeds the exact percentile by at most one bin.

    Args:
        percentile: above 0, at most 100, which is min-max.

    Raises:
        CourseError: a percentile outside that range.
    """

    percentile: float = 99.99

    def __post_init__(self) -> None:
        if not 0 < self.percentile <= 100:
            raise CourseError(f"percentile must be above 0 and at most 100, got {self.percentile}")

    def threshold(self, histogram: Histogram) -> float:
        """See `Calibrator.threshold`."""
        wanted = self.percentile / 100 * histogram.total
        last = int(np.searchsorted(np.cumsum(histogram.counts), wanted))
        return min(histogram.bin_width * (last + 1), histogram.amax)


@dataclass(frozen=True)
class EntropyCalibrator:
    """Keeps the most information: the threshold with the lowest KL divergence from the observed distribution to its INT8 version.

    `divergence` is the published method for one candidate; `curve` computes it for all candidates at once. The candidates
    are the upper edges of all bins from the 128th to the one that holds the largest value.

    Two points are not on the slides. First, the first bin holds the zeros of a Relu, often half of all values or more. Zero is
    exact in INT8 at every threshold, but a spike that shares a level with other bins would dominate the divergence and lower
    the threshold. The first bin therefore gets the count of the second, as in NVIDIA's pytorch-quantization. Second, a
    candidate without any counts below it is not a distribution: its divergence is infinite.

    The divergence compares the shapes of distributions and ignores the cost of an error. If values cluster in narrow spikes, as
    after a first convolution over blank paper, every level that joins a spike to its neighbors counts against a wide
    range. The threshold can then be too low: compare `curve` with that of `MSECalibrator`.

    Source: S. Migacz, "8-bit Inference with TensorRT", GTC 2017, slides 36-39.
    """

    score_label: ClassVar[str] = "KL divergence (nats)"

    def threshold(self, histogram: Histogram) -> float:
        """See `Calibrator.threshold`."""
        return _best(self, histogram)

    def curve(self, histogram: Histogram) -> tuple[np.ndarray, np.ndarray]:
        """See `SearchingCalibrator.curve`.

        With N = all counts, K = counts kept below the candidate, P and Q as in `divergence`, before they are normalized::

            KL = sum(P/N * ln((P/N) / (Q/K))) = (sum(P ln P) - sum(P ln Q)) / N + ln(K/N)

        Q is constant over the filled bins of a level and P sums to the level's count there, so a level adds ``-L ln(L/n)`` to
        the second sum: differences of running totals give it without a loop over bins.
        """
        counts = without_zeros(histogram)
        kept = np.arange(LEVELS, len(counts) + 1)
        borders = -(np.arange(LEVELS + 1) * -kept[:, None] // LEVELS)  # (candidates, levels + 1): first bin of each level

        in_level = np.diff(_running(counts)[borders], axis=1)
        filled = np.diff(_running(counts > 0)[borders], axis=1)
        q = in_level / np.maximum(filled, 1)

        last = counts[kept - 1]
        total, within = counts.sum(), _running(counts)[kept]
        outliers = total - within
        q_last = np.where(last > 0, q[:, -1], np.where(outliers > 0, UNSEEN, 0))
        p_ln_p = _running(_x_ln(counts, counts))[kept] - _x_ln(last, last) + _x_ln(last + outliers, last + outliers)
        p_ln_q = _x_ln(in_level, q).sum(1) + _x_ln(outliers, q_last)
        q_total = within + np.where(last > 0, 0, q_last)
        with np.errstate(divide="ignore", invalid="ignore"):
            scores = (p_ln_p - p_ln_q) / total + np.log(q_total / total)
        scores = np.where(within > 0, np.maximum(scores, 0), np.inf)  # rounding may leave -1e-16
        return _thresholds(histogram, kept), scores


@dataclass(frozen=True)
class MSECalibrator:
    """Makes the smallest error: the threshold with the lowest mean squared difference between a value and its INT8 copy.

    Every value counts as the middle of its bin. The candidates are the upper edges of every eighth bin, from the 128th to the
    one that holds the largest value. Below the 128th bin, a step would be finer than a bin.
    """

    score_label: ClassVar[str] = "mean squared error (unit squared)"

    def threshold(self, histogram: Histogram) -> float:
        """See `Calibrator.threshold`."""
        return _best(self, histogram)

    def curve(self, histogram: Histogram) -> tuple[np.ndarray, np.ndarray]:
        """See `SearchingCalibrator.curve`."""
        used = max(histogram.used, LEVELS)
        candidates = np.unique(_thresholds(histogram, np.append(np.arange(LEVELS, used, 8), used)))
        filled = np.flatnonzero(histogram.counts)
        values, weights = histogram.centers[filled], histogram.counts[filled] / max(histogram.total, 1)
        steps = candidates[:, None] / (LEVELS - 1)
        with np.errstate(invalid="ignore"):
            copies = np.minimum(np.rint(values / np.where(steps > 0, steps, 1)), LEVELS - 1) * steps
        return candidates, ((values - copies) ** 2) @ weights


def divergence(counts: np.ndarray, kept: int) -> float:
    """KL divergence, in nats, between a distribution and its INT8 copy with the threshold after bin ``kept``.

    This is TensorRT's calibration algorithm from its slides, for one candidate. `EntropyCalibrator.curve`
    gives the same numbers for all candidates at once.

    Args:
        counts: histogram of absolute values, shape ``(bins,)``.
        kept: number of bins below the threshold, from ``LEVELS`` to ``bins``.
    """
    inside = counts[:kept].astype(float)
    if not inside.any():
        return float("inf")

    # P is what was seen, with everything beyond the threshold moved into the last bin: clipping does just that.
    p = inside.copy()
    p[-1] += counts[kept:].sum()

    # Quantize: `kept` bins become `LEVELS` levels. The clipped values are left out on purpose: Q must not be rewarded for
    # them, so that the more is clipped the further P's last bin stands out over Q's.
    level = np.arange(kept) * LEVELS // kept
    in_level = np.bincount(level, weights=inside, minlength=LEVELS)

    # Expand: Q spreads each level's count evenly over those of its bins that were not empty.
    filled = np.bincount(level, weights=inside > 0, minlength=LEVELS)
    q = np.where(inside > 0, in_level[level] / np.maximum(filled[level], 1), 0)

    # Smooth. Where P has something and Q has nothing the divergence would be infinite, and that can only be the last bin,
    # when it was empty but for what was clipped. A bin in which nothing fell so far is rare, not impossible: give it a
    # little. Where P has nothing the term is 0, because x ln x goes to 0 with x.
    q[(p > 0) & (q == 0)] = UNSEEN

    p, q = p / p.sum(), q / q.sum()
    seen = p > 0
    return max(float(np.sum(p[seen] * np.log(p[seen] / q[seen]))), 0.0)


def without_zeros(histogram: Histogram) -> np.ndarray:
    """Float64 counts up to the largest value, the first bin leveled to the second: what `EntropyCalibrator` searches."""
    counts = histogram.counts[: max(histogram.used, LEVELS)].astype(float)
    counts[0] = counts[1]
    return counts


def _best(calibrator: SearchingCalibrator, histogram: Histogram) -> float:
    """The candidate with the lowest score; of equal ones the largest, which clips least."""
    candidates, scores = calibrator.curve(histogram)
    if not np.isfinite(scores).any():  # nothing but zeros, or nothing beyond the first bin: there is no choice to make
        return histogram.amax
    return float(candidates[np.flatnonzero(scores == scores.min())[-1]])


def _thresholds(histogram: Histogram, kept: np.ndarray) -> np.ndarray:
    """The upper edge of the last bin that each candidate keeps, but never more than the largest value."""
    return np.minimum(histogram.bin_width * kept.astype(float), histogram.amax)


def _running(values: np.ndarray) -> np.ndarray:
    """Running totals that start with 0, one longer than ``values``."""
    return np.concatenate([[0.0], np.cumsum(values)])


def _x_ln(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """``x * ln(y)``, and 0 where x is 0."""
    return x * np.log(np.where(x > 0, y, 1))
