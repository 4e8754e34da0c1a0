"""Occupancy beside what a kernel is limited by: threads that wait are no sign of speed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from course_lib import style
from course_lib.profiling.ncu_reader import LATENCY_SHARE, KernelMetrics
from course_lib.profiling.timeline import label

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BARS = ("occupancy", "dram_share", "sm_share")
_NAMES = ("occupancy: active warps", "device memory", "multiprocessors")


def draw_occupancy(kernels: Sequence[KernelMetrics]) -> Figure:
    """Three bars a kernel: occupancy, and the share of the peaks of device memory and of the multiprocessors, in percent.

    Args:
        kernels: of `read_ncu`; what was not measured has no bar.

    Raises:
        ValueError: no kernel with all three figures.
    """
    whole = [kernel for kernel in kernels if None not in (getattr(kernel, name) for name in _BARS)]
    if not whole:
        raise ValueError(
            "no kernel has occupancy, memory and multiprocessor shares: measure METRICS of course_lib.profiling.nsight"
        )
    figure = style.figure(8.5, 1.4 + 0.62 * len(whole))
    axes = figure.add_subplot()
    for index, (field, name) in enumerate(zip(_BARS, _NAMES, strict=True)):
        places = [row + 0.25 * (index - 1) for row in range(len(whole))]
        values = [100 * getattr(kernel, field) for kernel in whole]
        bars = axes.barh(places, values, 0.23, color=("#BBBBBB", style.colour(0), style.colour(1))[index], label=name)
        axes.bar_label(bars, fmt="%.0f", padding=2, fontsize=7.5)
    axes.axvline(100 * LATENCY_SHARE, color="#777777", lw=1, ls=":")
    rows = [
        f"{number}  {_short(label(kernel.name, 'kernel'))}\n({kernel.bound}-bound)" for number, kernel in enumerate(whole, 1)
    ]
    axes.set_yticks(range(len(whole)), rows, fontsize=8)
    axes.invert_yaxis()
    axes.set(xlim=(0, 108), xlabel="share of the peak (%); dotted: below it on both, a kernel waits")
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    compute = max(whole, key=lambda kernel: kernel.sm_share or 0.0)
    busy, active = 100 * (compute.sm_share or 0.0), 100 * (compute.occupancy or 0.0)
    axes.set_title(f"The kernel that computes most ({busy:.0f} % of the peak) has an occupancy of {active:.0f} %")
    return figure


def _short(text: str, most: int = 34) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
