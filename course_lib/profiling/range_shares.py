"""Where the time of one step goes, range by range, and what removing a range could win at most."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from course_lib import style
from course_lib.errors import ProfileError
from course_lib.profiling.timeline import Timeline

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REST = "between the ranges"


def range_ms(timeline: Timeline, step: str) -> dict[str, float]:
    """Milliseconds of one step in each range inside it, the longest first, and at the end what no range covers.

    Args:
        timeline: with ranges that do not lie inside each other, except inside the step's.
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
    """How many times as fast a step would be if one range took no time at all.

    Source: Amdahl (1967), Validity of the single processor approach to achieving large scale computing capabilities.
    """
    total = sum(parts_ms.values())
    left = total - parts_ms[name]
    return total / left if left > 0 else float("inf")


def draw_steps(versions: Mapping[str, Mapping[str, float]], step: str) -> Figure:
    """One bar a version of the program, made of its ranges.

    Args:
        versions: of `range_ms`, by the version's name, in the order in which they were made.
        step: what one step is called.
    """
    names = [*dict.fromkeys(name for parts in versions.values() for name in parts if name != REST), REST]
    figure = style.figure(8.5, 1.5 + 0.45 * len(versions))
    axes = figure.add_subplot()
    for row, parts in enumerate(versions.values()):
        left = 0.0
        for name, ms in parts.items():
            hue = "#BBBBBB" if name == REST else style.colour(names.index(name))
            axes.barh(row, ms, left=left, color=hue, height=0.6, edgecolor="white", lw=0.5)
            left += ms
        axes.annotate(f"{left:.2f} ms", (left, row), (4, 0), textcoords="offset points", va="center", fontsize=8)
    for name in names:
        axes.barh([0], [0], color="#BBBBBB" if name == REST else style.colour(names.index(name)), label=name)
    axes.set_yticks(range(len(versions)), list(versions))
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set_xlabel(f"time of one {step} (ms)")
    figure.legend(loc="outside lower center", ncols=min(5, len(names)), frameon=False, fontsize=8)
    totals = [sum(parts.values()) for parts in versions.values()]
    takeaway = f"A {step} took {totals[0]:.1f} ms"
    axes.set_title(
        takeaway + (f" and takes {totals[-1]:.1f} ms: {totals[0] / totals[-1]:.1f} times the speed" if totals[1:] else "")
    )
    return figure
