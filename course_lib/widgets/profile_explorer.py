"""An optimization profile over real traffic: what it covers, what it refuses, and how long the answers take."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from course_lib import style
from course_lib.widgets.controls import whole_slider
from course_lib.widgets.shown import Shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class ProfileExplorer(Shown):
    """min, opt and max of one dimension, moved over a measured latency curve and a trace of requests.

    Between two measured sizes the latency is interpolated on a straight line. The curve is what it was measured as: moving opt
    here does not choose other kernels; build again and measure for that.

    Args:
        curve: size to median latency in milliseconds, at least two sizes.
        requests: the size of each request, in any order.
        dimension: what the sizes count, such as "batch".

    Raises:
        ValueError: sizes or latencies that are not positive, fewer than two measured sizes, or no requests.
    """

    def __init__(self, curve: Mapping[int, float], requests: Sequence[int], dimension: str = "batch") -> None:
        self._sizes = np.array(sorted(curve))
        self._latencies = np.array([float(curve[size]) for size in self._sizes])
        self._requests = np.asarray(list(requests))
        self._dimension = dimension
        self._refuse()
        largest = int(max(self._sizes.max(), self._requests.max()))
        common = int(np.bincount(self._requests).argmax())
        super().__init__(
            {
                "low": whole_slider(f"min {dimension}", 1, 1, largest),
                "opt": whole_slider(f"opt {dimension}", common, 1, largest),
                "high": whole_slider(f"max {dimension}", int(self._requests.max()), 1, largest),
            }
        )

    def figure(self, low: int, opt: int, high: int) -> Figure:
        """The latency curve above the histogram of the requests, with the profile's range shaded."""
        from matplotlib.patches import Patch

        figure = style.figure(8.0, 4.4)
        latency, traffic = figure.subplots(2, 1, sharex=True, height_ratios=[1.2, 1])
        latency.plot(self._sizes, self._latencies, "o-", ms=3, color=style.colour(0))
        latency.set(ylabel="latency (ms)", ylim=(0, 1.15 * self._latencies.max()))
        inside = self._answered(low, opt, high)
        kinds = []
        for label, sizes, hue in (("answered", self._requests[inside], 2), ("refused", self._requests[~inside], 1)):
            values, counts = np.unique(sizes, return_counts=True)
            traffic.bar(values, counts, width=0.9, color=style.colour(hue))
            kinds.append(Patch(color=style.colour(hue), label=f"{label}: {len(sizes):,}"))
        traffic.set(xlabel=f"{self._dimension} size", ylabel="requests", xlim=(0, self.controls["high"].max + 1))
        traffic.legend(handles=kinds, frameon=False, fontsize=8, loc="upper right")
        if low <= opt <= high:
            for axes in (latency, traffic):
                axes.axvspan(low - 0.5, high + 0.5, color=style.colour(2), alpha=0.12, lw=0)
                axes.axvline(opt, color="black", lw=1.2, ls="--")
            latency.annotate(
                "opt", (opt, 0.98), (3, 0), xycoords=latency.get_xaxis_transform(), textcoords="offset points", va="top"
            )
        figure.suptitle(self._takeaway(low, opt, high), fontsize=10, weight="bold")
        return figure

    def text(self, low: int, opt: int, high: int) -> str:
        """The share that is refused, and the latency of what is answered."""
        if not low <= opt <= high:
            return f"min {low}, opt {opt}, max {high} is no profile: the builder refuses it unless min <= opt <= max."
        inside = self._answered(low, opt, high)
        refused = self._requests[~inside]
        sizes = f", of sizes {refused.min()} to {refused.max()}" if refused.size else ""
        text = f"{self._dimension} {low} to {high}, best at {opt}: {refused.size:,} of {inside.size:,} requests refused "
        text += f"({100 * refused.size / inside.size:.3g} %{sizes})."
        if not inside.any():
            return text
        latencies = np.interp(self._requests[inside], self._sizes, self._latencies)
        return f"{text} Latency of the answered ones: mean {latencies.mean():.3g} ms, slowest {latencies.max():.3g} ms."

    def _refuse(self) -> None:
        if len(self._sizes) < 2 or self._sizes.min() < 1 or not all(0 < ms < math.inf for ms in self._latencies):
            raise ValueError(
                f"a curve maps at least two sizes from 1 on to positive milliseconds, got {len(self._sizes)} sizes"
            )
        if not self._requests.size or self._requests.dtype.kind not in "iu" or self._requests.min() < 1:
            raise ValueError("requests must hold the size of each request, whole numbers from 1 on, and at least one of them")

    def _answered(self, low: int, opt: int, high: int) -> np.ndarray:
        return (self._requests >= low) & (self._requests <= high) & (low <= opt <= high)

    def _takeaway(self, low: int, opt: int, high: int) -> str:
        if not low <= opt <= high:
            return "No profile: min <= opt <= max does not hold, the builder refuses it"
        refused = 1 - self._answered(low, opt, high).mean()
        return f"{self._dimension} {low} to {high}: {100 * refused:.3g} % of the requests are refused"
