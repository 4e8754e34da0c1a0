"""An optimization profile over real traffic: what it covers, what it refuses, and how long the answers take."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from course_lib import style
from course_lib.widgets.controls import choice, whole_slider
from course_lib.widgets.shown import Shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class ProfileExplorer(Shown):
    """min, opt and max of one dimension, moved over measured latency curves and a trace of requests.

    Each value of opt that can be chosen has its own curve, measured on an engine that was built for it. Between two measured sizes the
    latency is interpolated on a straight line.

    Args:
        curves: for each opt, size to median latency in milliseconds at two sizes or more.
        requests: the size of each request, in any order.
        dimension: what the sizes count, such as "batch".

    Raises:
        ValueError: sizes or latencies that are not positive, fewer than two measured sizes, no curve, or no requests.
    """

    def __init__(self, curves: Mapping[int, Mapping[int, float]], requests: Sequence[int], dimension: str = "batch") -> None:
        self._curves = {opt: dict(sorted(curve.items())) for opt, curve in sorted(curves.items())}
        self._requests = np.asarray(list(requests))
        self._dimension = dimension
        self._refuse()
        largest = int(max(self._requests.max(), *(size for curve in self._curves.values() for size in curve)))
        common = int(np.bincount(self._requests).argmax())
        nearest = min(self._curves, key=lambda opt: abs(opt - common))
        super().__init__(
            {
                "low": whole_slider(f"min {dimension}", 1, 1, largest),
                "opt": choice(f"opt {dimension}", [(str(opt), opt) for opt in self._curves], nearest),
                "high": whole_slider(f"max {dimension}", max(int(self._requests.max()), nearest), 1, largest),
            }
        )

    def figure(self, low: int, opt: int, high: int) -> Figure:
        """The latency curves above the histogram of the requests, with the profile's range shaded."""
        from matplotlib.patches import Patch

        figure = style.figure(8.0, 4.4)
        latency, traffic = figure.subplots(2, 1, sharex=True, height_ratios=[1.2, 1])
        for known, curve in self._curves.items():
            chosen = known == opt
            look: dict[str, Any] = {"color": style.colour(0), "lw": 2, "zorder": 3} if chosen else {"color": "#999999", "lw": 1}
            latency.plot(list(curve), list(curve.values()), "o-", ms=3, label=f"opt {known}", **look)
            if not chosen:
                latency.annotate(
                    f"opt {known}", list(curve.items())[-1], (4, 0), textcoords="offset points", va="center", fontsize=7
                )
        highest = max(max(curve.values()) for curve in self._curves.values())
        latency.set(ylabel="latency (ms)", ylim=(0, 1.15 * highest))
        inside = self._answered(low, opt, high)
        kinds = []
        for label, sizes, hue in (("answered", self._requests[inside], 2), ("refused", self._requests[~inside], 1)):
            values, counts = np.unique(sizes, return_counts=True)
            traffic.bar(values, counts, width=0.9, color=style.colour(hue))
            kinds.append(Patch(color=style.colour(hue), label=f"{label}: {len(sizes):,}"))
        traffic.set(xlabel=f"{self._dimension} size", ylabel="requests", xlim=(0, self.controls["high"].limits["high"] + 1))
        traffic.legend(handles=kinds, frameon=False, fontsize=8, loc="upper right")
        if low <= opt <= high:
            for axes in (latency, traffic):
                axes.axvspan(low - 0.5, high + 0.5, color=style.colour(2), alpha=0.12, lw=0)
                axes.axvline(opt, color="black", lw=1.2, ls="--")
            latency.annotate(
                f"opt {opt}", (opt, 0.98), (3, 0), xycoords=latency.get_xaxis_transform(), textcoords="offset points", va="top"
            )
        figure.suptitle(self._takeaway(low, opt, high), fontsize=10, weight="bold")
        return figure

    def text(self, low: int, opt: int, high: int) -> str:
        """The share that is refused, and the latency of what is answered, with this opt and with each other one."""
        if not low <= opt <= high:
            return f"min {low}, opt {opt}, max {high} is not a profile: the builder refuses it unless min <= opt <= max."
        inside = self._answered(low, opt, high)
        refused = self._requests[~inside]
        sizes = f", of sizes {refused.min()} to {refused.max()}" if refused.size else ""
        text = f"{self._dimension} {low} to {high}, tuned for {opt}: {refused.size:,} of {inside.size:,} requests refused "
        text += f"({100 * refused.size / inside.size:.3g} %{sizes})."
        if not inside.any():
            return text
        answered = self._requests[inside]
        latencies = {known: np.interp(answered, list(curve), list(curve.values())) for known, curve in self._curves.items()}
        mine = latencies.pop(opt)
        text += f" Latency of the answered ones: mean {mine.mean():.3g} ms, slowest {mine.max():.3g} ms."
        if not latencies:
            return text
        others = ", ".join(f"opt {known}: {times.mean():.3g} and {times.max():.3g} ms" for known, times in latencies.items())
        return f"{text} The same requests with {others}."

    def _refuse(self) -> None:
        if not self._curves:
            raise ValueError("curves must hold a latency curve for each opt, and found none: measure at least one engine")
        for opt, curve in self._curves.items():
            if len(curve) < 2 or min(curve) < 1 or not all(0 < ms < math.inf for ms in curve.values()):
                raise ValueError(
                    f"the curve of opt {opt} must map at least two sizes from 1 on to positive milliseconds, found {curve}"
                )
        if not self._requests.size or self._requests.dtype.kind not in "iu" or self._requests.min() < 1:
            raise ValueError("requests must hold the size of each request, whole numbers from 1 on, and at least one of them")

    def _answered(self, low: int, opt: int, high: int) -> np.ndarray:
        return (self._requests >= low) & (self._requests <= high) & (low <= opt <= high)

    def _takeaway(self, low: int, opt: int, high: int) -> str:
        if not low <= opt <= high:
            return "Not a profile: min <= opt <= max does not hold, so the builder refuses it"
        inside = self._answered(low, opt, high)
        curve = self._curves[opt]
        latency = (
            f", mean {np.interp(self._requests[inside], list(curve), list(curve.values())).mean():.3g} ms"
            if inside.any()
            else ""
        )
        return f"{self._dimension} {low} to {high}, tuned for {opt}: {100 * (1 - inside.mean()):.3g} % refused{latency}"
