"""Figures of calibration: the distribution of a tensor's values, the threshold of each rule, and the search for a threshold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from course_lib import style

if TYPE_CHECKING:
    from course_lib.precision.calibration.calibrators import SearchingCalibrator
    from course_lib.precision.calibration.histogram import Histogram

_DRAWN = 256  # steps in the outline of a histogram: more cannot be told apart at this size


def histogram_figure(histogram: Histogram, thresholds: Mapping[str, float]) -> style.Figure:
    """The absolute values of one tensor on a logarithmic count axis, and a vertical line for each threshold with its clipped share.

    The title gives the clipped share of the smallest threshold, and how much finer than min-max its steps are.

    Args:
        histogram: histogram of the tensor.
        thresholds: amax in the tensor's unit by label; may be empty.
    """
    drawn, axes = style.subplots(3.4)
    together = max(1, len(histogram.counts) // _DRAWN)
    counts = histogram.counts.reshape(-1, together).sum(1)
    counts = counts[: -(-histogram.used // together)]
    edges = histogram.bin_width * together * np.arange(len(counts) + 1)
    axes.stairs(counts, edges, fill=True, color="#BBBBBB")
    axes.set_yscale("log")
    axes.set_xlim(0, 1.02 * max(edges[-1], *thresholds.values(), 0))
    axes.set(xlabel=f"absolute value of {histogram.name}", ylabel=f"values per {edges[1]:.2g} (log)")
    marks = {
        f"{label}: {threshold:.3g}\nclips {100 * histogram.share_above(threshold):.2g} %": threshold
        for label, threshold in thresholds.items()
    }
    hues = [style.color(threshold == min(marks.values())) for threshold in marks.values()]
    style.mark_values(axes, marks, hues)
    axes.set_title(_takeaway(histogram, thresholds))
    return drawn


def kl_curve(calibrator: SearchingCalibrator, histogram: Histogram) -> style.Figure:
    """The score of every candidate threshold, and the chosen one, for any calibrator that searches.

    Args:
        calibrator: such as `EntropyCalibrator` (its score is the KL divergence) or `MSECalibrator`.
        histogram: histogram of the tensor.
    """
    drawn, axes = style.subplots()
    candidates, scores = calibrator.curve(histogram)
    chosen = calibrator.threshold(histogram)
    axes.plot(candidates, np.where(np.isfinite(scores), scores, np.nan), color=style.color(0), lw=1.4)
    if (scores[np.isfinite(scores)] > 0).any():
        axes.set_yscale("log")
    axes.set(xlabel=f"candidate threshold for {histogram.name}", ylabel=calibrator.score_label)
    share = 100 * chosen / histogram.amax if histogram.amax else 100.0
    axes.set_title(f"Lowest at {chosen:.4g}, {share:.0f} % of the largest value")
    style.mark_values(axes, {f"chosen: {chosen:.4g}": chosen}, [style.color(1)])
    return drawn


def _takeaway(histogram: Histogram, thresholds: Mapping[str, float]) -> str:
    positive = {label: value for label, value in thresholds.items() if value > 0}
    if not positive:
        return f"{histogram.total:,} values, the largest {histogram.amax:.4g}"
    label = min(positive, key=lambda name: positive[name])
    finer, clipped = histogram.amax / positive[label], 100 * histogram.share_above(positive[label])
    if clipped == 0 and finer < 1.005:
        return f"{label}: clips nothing, steps of {positive[label] / 127:.3g}"
    return f"Clipping {clipped:.2g} % makes the steps {finer:.3g} times finer"
