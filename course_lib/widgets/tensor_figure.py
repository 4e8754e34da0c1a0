"""A whole tensor in eight bits: what a threshold clips, and what it costs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from course_lib import style
from course_lib.benchmark import sqnr_db
from course_lib.precision.formats import FORMATS, int8
from course_lib.precision.histogram import Histogram, StreamingHistogram

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SCALED = ("INT8", "FP8 E4M3", "FP8 E5M2")  # formats that are used with a scale, so that a threshold means something
_UNSCALED = ("FP16", "BF16")  # for comparison
_CANDIDATES = 48
_LARGEST_TENSOR = 1_000_000
_BARS = 128


@dataclass(frozen=True, eq=False)
class TensorView:
    """A tensor's values, its histogram, and what eight bits cost it.

    Attributes:
        name: of the tensor.
        values: float64, one dimension.
        histogram: of their absolute values.
    """

    name: str
    values: np.ndarray
    histogram: Histogram

    @classmethod
    def of(cls, values: ArrayLike, name: str) -> TensorView:
        """A view of any array of finite floats that are not all zero.

        Raises:
            ValueError: an array that is empty, too large, all zero or not of a float type.
            CourseError: values that are not finite.
        """
        array = np.asarray(values)
        if array.dtype.kind != "f" or not 0 < array.size <= _LARGEST_TENSOR:
            raise ValueError(
                f"{name} must hold 1 to {_LARGEST_TENSOR:,} floats, found {array.size:,} of {array.dtype}: pass a part of the tensor"
            )
        flat = array.astype(np.float64).ravel()
        counted = StreamingHistogram(name)
        counted.add(flat)
        if not flat.any():
            raise ValueError(f"{name} holds nothing but zeros: there is no range to choose")
        return cls(name, flat, counted.result())

    def sqnr_db(self, name: str, threshold: float) -> float:
        """Signal over error in dB when the tensor is stored in a scaled format whose largest number stands for ``threshold``."""
        if name == "INT8":
            return sqnr_db(self.values, int8(threshold / 127).round(self.values))
        scale = threshold / FORMATS[name].largest
        inside = np.clip(self.values, -threshold, threshold)  # as quantization does; a plain cast would give NaN or infinity
        return sqnr_db(self.values, FORMATS[name].round(inside / scale) * scale)

    @cached_property
    def unscaled(self) -> dict[str, float]:
        """SQNR in dB of plain casts, without a scale; minus infinity where a value overflows."""
        return {name: sqnr_db(self.values, FORMATS[name].round(self.values)) for name in _UNSCALED}

    @cached_property
    def candidates(self) -> np.ndarray:
        """Thresholds from 1 % of the largest magnitude to all of it, evenly spaced on a logarithmic axis."""
        return self.histogram.amax * np.geomspace(0.01, 1.0, _CANDIDATES)

    @cached_property
    def curves(self) -> dict[str, np.ndarray]:
        """By format, `sqnr_db` at each candidate."""
        return {name: np.array([self.sqnr_db(name, threshold) for threshold in self.candidates]) for name in SCALED}


def tensor_figure(view: TensorView, percent: float, name: str) -> Figure:
    """The histogram with its clipped part, and the quality over the threshold.

    Args:
        view: of the tensor.
        percent: the threshold, in per cent of the largest magnitude, above 0 and at most 100.
        name: one of `SCALED`.

    Raises:
        ValueError: another format, or a threshold outside that range.
    """
    threshold = _threshold(view, percent, name)
    figure = style.figure(9.0, 3.6)
    counts, quality = figure.subplots(1, 2)
    _draw_histogram(counts, view, threshold)
    _draw_quality(quality, view, threshold, name)
    clipped = 100 * view.histogram.share_above(threshold)
    takeaway = f"{name} up to {threshold:.4g} clips {clipped:.3g} % and leaves {view.sqnr_db(name, threshold):.1f} dB"
    figure.suptitle(takeaway, fontsize=10, weight="bold")
    return figure


def tensor_text(view: TensorView, percent: float, name: str) -> str:
    """What the figure shows, in sentences. Arguments and errors as there."""
    threshold = _threshold(view, percent, name)
    best = int(np.argmax(view.curves[name]))
    clipped = 100 * view.histogram.share_above(threshold)
    plain = ", ".join(f"{other} {decibels:.1f} dB" for other, decibels in view.unscaled.items())
    step = f", steps of {threshold / 127:.3g}" if name == "INT8" else ""
    return (
        f"{name} with threshold {threshold:.4g} ({percent:.3g} % of the largest magnitude){step}: {clipped:.3g} % of "
        f"{view.values.size:,} values clipped, SQNR {view.sqnr_db(name, threshold):.1f} dB; best of {_CANDIDATES} thresholds: "
        f"{view.candidates[best]:.4g}, {view.curves[name][best]:.1f} dB. Plain casts: {plain}."
    )


def _threshold(view: TensorView, percent: float, name: str) -> float:
    if name not in SCALED:
        raise ValueError(f"a threshold is for formats with a scale ({', '.join(SCALED)}), not for {name!r}")
    if not 0 < percent <= 100:
        raise ValueError(f"the threshold must lie above 0 and at most at 100 % of the largest magnitude, got {percent}")
    return view.histogram.amax * percent / 100


def _draw_histogram(axes: Axes, view: TensorView, threshold: float) -> None:
    from matplotlib.patches import Patch

    counts, edges = np.histogram(np.abs(view.values), bins=_BARS, range=(0, view.histogram.amax))
    centres, width = (edges[:-1] + edges[1:]) / 2, edges[1]
    kept = centres <= threshold
    axes.bar(centres, counts, width, color=[style.colour(0 if inside else 1) for inside in kept])
    axes.axvline(threshold, color="black", lw=1.5)
    axes.set_yscale("log")
    axes.set(xlim=(0, 1.02 * view.histogram.amax), xlabel=f"absolute value of {view.name}", ylabel="values per bin (log)")
    kinds = [Patch(color=style.colour(0), label="kept"), Patch(color=style.colour(1), label="clipped")]
    axes.legend(handles=kinds, frameon=False, loc="upper right", fontsize=8)


def _draw_quality(axes: Axes, view: TensorView, threshold: float, name: str) -> None:
    for index, other in enumerate(SCALED):
        chosen = other == name
        look: dict[str, Any] = {"lw": 2.5, "zorder": 3} if chosen else {"lw": 1.2, "alpha": 0.6}
        axes.plot(view.candidates, view.curves[other], color=style.colour((0, 2, 3)[index]), label=other, **look)
    for other, decibels in view.unscaled.items():
        if np.isfinite(decibels):
            axes.axhline(decibels, color="#777777", lw=1, ls="--")
            axes.annotate(f"plain {other}", (view.candidates[0], decibels), (0, 2), textcoords="offset points", fontsize=7.5)
    axes.plot([threshold], [view.sqnr_db(name, threshold)], "o", ms=8, color="black", zorder=4)
    axes.legend(frameon=False, loc="lower right", fontsize=8)
    axes.set_xscale("log")
    axes.set(xlabel="threshold (log)", ylabel="SQNR (dB), higher is better")
