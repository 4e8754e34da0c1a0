"""The roofline: how fast a kernel could be for what it computes and moves, and how fast it is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from course_lib import style
from course_lib.profiling.readers.ncu import KernelMetrics
from course_lib.profiling.timelines.timeline import label


def roofline(metrics: Sequence[KernelMetrics], peak_flops: float, peak_bandwidth: float) -> style.Figure:
    """Speed over arithmetic intensity, both axes logarithmic, one numbered dot per kernel, and the roof above them.

    A kernel under the slope cannot be faster than memory delivers, one under the flat part not faster than the units compute. The
    list below the axes has the share of the roof that it reaches and what it is bound by. Kernels without counted operations
    (copies) have no place on the axes; they are listed with their bandwidth.

    Args:
        metrics: result of `read_ncu`.
        peak_flops: operations per second of the units that the kernels use, for their datatype.
        peak_bandwidth: peak bandwidth of device memory in bytes per second.

    Raises:
        ValueError: no kernels, or a peak that is not positive.

    Source: Williams, Waterman and Patterson, Roofline: An Insightful Visual Performance Model (2009).
    """
    if not metrics:
        raise ValueError("no kernels to draw: did the profiler's filters match any?")
    if min(peak_flops, peak_bandwidth) <= 0:
        raise ValueError(f"peaks are positive, not {peak_flops} operations/s and {peak_bandwidth} bytes/s")
    ridge = peak_flops / peak_bandwidth
    placed = [kernel for kernel in metrics if kernel.intensity and kernel.flops_per_second]
    intensities = [kernel.intensity or 0.0 for kernel in placed]
    low = 10 ** math.floor(math.log10(min([ridge / 10, *intensities])) - 0.3)
    high = 10 ** math.ceil(math.log10(max([ridge * 10, *intensities])) + 0.1)

    figure, axes = style.subplots(3.2 + 0.34 * len(metrics))
    roof = [peak_bandwidth * low, peak_flops, peak_flops]
    axes.loglog([low, ridge, high], roof, color="#333333", lw=1.5)
    axes.axvline(ridge, color="#BBBBBB", lw=0.8, ls=":")
    middle = math.sqrt(low * ridge)
    above: dict[str, Any] = {"textcoords": "offset points", "fontsize": 8, "color": "#333333", "ha": "right"}
    axes.annotate(f"{_si(peak_bandwidth)}B/s", (middle, peak_bandwidth * middle), (-6, 2), **above)
    axes.annotate(f"{_si(peak_flops)}FLOP/s", (high, peak_flops), (-4, 9), **above)  # above the marker of a kernel at its roof
    bounds = []
    for number, kernel in enumerate(metrics, 1):
        name = label(kernel.name, "kernel")
        name = name if len(name) <= 34 else f"{name[:33]}…"
        if kernel not in placed:
            speed = f"no operations, {_si(kernel.bytes_per_second)}B/s" if kernel.bytes_per_second else "not counted"
            bound = f"; {kernel.bound}-bound" if kernel.bound else ""
            axes.plot([], [], " ", label=f"{number}  {name}\n{speed}{bound}")
            continue
        x, y = kernel.intensity or 0.0, kernel.flops_per_second or 0.0
        bound = kernel.bound or ("memory" if x < ridge else "compute")
        bounds.append(bound)
        reached = 100 * y / min(peak_flops, peak_bandwidth * x)
        share = f"{reached:.0f}" if reached >= 1 else f"{reached:.2g}"
        text = f"{number}  {name}\n{share} % of its roof; {bound}-bound"
        axes.plot([x], [y], "o", ms=10, color=style.color(number - 1), label=text)
        axes.annotate(str(number), (x, y), ha="center", va="center", fontsize=8, color="white", weight="bold")
    axes.set(xlim=(low, high), xlabel="arithmetic intensity (FLOP per byte of device memory)", ylabel="speed (FLOP/s)")
    figure.legend(loc="outside lower left", frameon=False, fontsize=8, handletextpad=0.4)
    figure.suptitle(_takeaway(bounds, ridge))
    return figure


def _takeaway(bounds: Sequence[str], ridge: float) -> str:
    counts = [f"{bounds.count(kind)} {kind}-bound" for kind in ("memory", "compute", "latency") if kind in bounds]
    return f"{', '.join(counts) or 'No operations counted'}; memory sets the pace below {ridge:.0f} FLOP per byte"


def _si(value: float) -> str:
    """A number with a decimal prefix: 4.3e12 -> ``"4.3 T"``."""
    for prefix, size in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if value >= size:
            return f"{value / size:.3g} {prefix}"
    return f"{value:.3g} "
