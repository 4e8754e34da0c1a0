"""Lecture 12: occupancy and the limit of a kernel, and the share of a step that each range takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from course_lib import style
from course_lib.errors import ProfileError
from course_lib.profiling.layer_tables.boxes import short
from course_lib.profiling.readers.ncu import LATENCY_SHARE, KernelMetrics
from course_lib.profiling.timelines.timeline import Timeline, label

_BARS = ("occupancy", "dram_share", "sm_share")
_NAMES = ("occupancy: active warps", "device memory", "multiprocessors")


def draw_occupancy(kernels: Sequence[KernelMetrics]) -> style.Figure:
    """Draw three bars per kernel: occupancy, and the shares of the peaks of device memory and of the multiprocessors, in percent.

    Args:
        kernels: result of `read_ncu`. A value that was not measured has no bar.

    Raises:
        ValueError: no kernel with all three figures.
    """
    whole = [kernel for kernel in kernels if None not in (getattr(kernel, name) for name in _BARS)]
    if not whole:
        raise ValueError(
            "no kernel has occupancy, memory and multiprocessor shares: measure METRICS of course_lib.profiling.readers.nsight"
        )
    figure, axes = style.subplots(1.4 + 0.62 * len(whole))
    for index, (field, name) in enumerate(zip(_BARS, _NAMES, strict=True)):
        places = [row + 0.25 * (index - 1) for row in range(len(whole))]
        values = [100 * getattr(kernel, field) for kernel in whole]
        bars = axes.barh(places, values, 0.23, color=("#BBBBBB", style.color(0), style.color(1))[index], label=name)
        axes.bar_label(bars, fmt="%.0f", padding=2, fontsize=8)
    axes.axvline(100 * LATENCY_SHARE, color="#777777", lw=1, ls=":")
    rows = [
        f"{number}  {short(label(kernel.name, 'kernel'), 26)}\n({kernel.bound}-bound)" for number, kernel in enumerate(whole, 1)
    ]
    style.name_rows(axes, rows, 8)
    axes.set(xlim=(0, 108), xlabel="share of the peak (%); dotted: below it on both, a kernel waits")
    style.name_colors(axes)
    compute = max(whole, key=lambda kernel: kernel.sm_share or 0.0)
    busy, active = 100 * (compute.sm_share or 0.0), 100 * (compute.occupancy or 0.0)
    axes.set_title(f"The kernel that computes most ({busy:.0f} % of the peak) has an occupancy of {active:.0f} %")
    return figure


REST = "between the ranges"


def range_ms(timeline: Timeline, step: str) -> dict[str, float]:
    """Milliseconds of one step in each range inside it, longest first, followed by the time that no range covers.

    Args:
        timeline: its ranges must not be nested, except inside the range of the step.
        step: the name of the range around one step; the figures are means over all of them.

    Raises:
        ProfileError: the timeline has no such range.
    """
    rows = {row.name: row for row in timeline.summary() if row.kind == "range"}
    if step not in rows:
        known = ", ".join(sorted(rows)) or "none"
        raise ProfileError(f"the timeline has no range {step!r}, only {known}: name the step when you record")
    whole = rows.pop(step)
    found = {name: row.total_us / 1e3 / whole.count for name, row in rows.items()}
    return {**found, REST: max(0.0, whole.mean_us / 1e3 - sum(found.values()))}


def at_most(parts_ms: Mapping[str, float], name: str) -> float:
    """The speedup of a step if one range took no time.

    Source: Amdahl (1967), Validity of the single processor approach to achieving large scale computing capabilities.
    """
    total = sum(parts_ms.values())
    left = total - parts_ms[name]
    return total / left if left > 0 else float("inf")


def draw_steps(versions: Mapping[str, Mapping[str, float]], step: str) -> style.Figure:
    """Draw one bar for each version of the program, made of its ranges.

    Args:
        versions: results of `range_ms` by the name of the version, in the order in which they were made.
        step: name of one step.
    """
    names = [*dict.fromkeys(name for parts in versions.values() for name in parts if name != REST), REST]
    figure, axes = style.subplots(1.5 + 0.45 * len(versions))
    for row, parts in enumerate(versions.values()):
        left = 0.0
        for name, ms in parts.items():
            hue = "#BBBBBB" if name == REST else style.color(names.index(name))
            axes.barh(row, ms, left=left, color=hue, height=0.6, edgecolor="white", lw=0.5)
            left += ms
        axes.annotate(f"{left:.2f} ms", (left, row), (4, 0), textcoords="offset points", va="center", fontsize=8)
    for name in names:
        axes.barh([0], [0], color="#BBBBBB" if name == REST else style.color(names.index(name)), label=name)
    style.name_rows(axes, list(versions))
    axes.margins(x=0.12)
    axes.set_xlabel(f"time of one {step} (ms)")
    style.name_colors(axes)
    totals = [sum(parts.values()) for parts in versions.values()]
    takeaway = f"A {step} took {totals[0]:.1f} ms"
    axes.set_title(
        takeaway + (f" and takes {totals[-1]:.1f} ms: {totals[0] / totals[-1]:.1f} times the speed" if totals[1:] else "")
    )
    return figure
