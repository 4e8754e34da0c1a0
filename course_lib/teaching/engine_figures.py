"""The effect of settings, profiles and fusion, drawn from the rows that ``benchmarks/engines.py`` records.

Rows are plain JSON values as the script writes them; those with ``failed`` are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from course_lib import style
from course_lib.errors import CourseError

Row = Mapping[str, Any]
DEFAULT = "tuned at 8"
_LABELS = {"three profiles": "3 profiles, tuned at 1, 8 and 64"}


def draw_batches(rows: Sequence[Row], source: str = "") -> style.Figure:
    """Draw each engine's time over the batch size, relative to the fastest engine at that size. The source is below the axis."""
    found = _those(rows, "latency", group="profiles")
    batches = sorted({row["batch"] for row in found})
    best = {batch: min(row["ms"] for row in found if row["batch"] == batch) for batch in batches}
    figure, axes = style.subplots(3.2)
    for index, name in enumerate(_unique(found, "engine")):
        points = sorted((row["batch"], row["ms"] / best[row["batch"]]) for row in found if row["engine"] == name)
        axes.plot(*zip(*points, strict=True), "o-", ms=4, lw=1.5, color=style.color(index), label=_LABELS.get(name, name))
    axes.set_xscale("log", base=2)
    axes.set_xticks(batches, [str(batch) for batch in batches])
    axes.set(xlabel=f"batch size\n{source}", ylabel="time (best engine = 1)")
    style.name_lines(axes)
    worst = max(found, key=lambda row: row["ms"] / best[row["batch"]])
    times = worst["ms"] / best[worst["batch"]]
    axes.set_title(f"{worst['engine'].capitalize()}: {times:.2f} times as long at batch {worst['batch']}")
    return figure


def draw_settings(rows: Sequence[Row]) -> style.Figure:
    """Left the seconds of each build, right the speed over the default with its interval."""
    measured = [row for group in ("workspace", "level") for row in _those(rows, "latency", group=group) if "speedup" in row]
    names = [DEFAULT, *_unique(measured, "engine")]
    seconds = {row["engine"]: row["compiler_s"] for row in _those(rows, "build") if row["engine"] in names}
    figure, (left, right) = style.subplots(1.4 + 0.3 * len(names), 1, 2, sharey=True)
    bars = left.barh(range(len(names)), [seconds.get(name, 0) for name in names], color=style.color(0), height=0.6)
    left.bar_label(bars, fmt="%.1f", padding=3, fontsize=8)
    left.margins(x=0.15)
    style.name_rows(left, ["default: 1024 MiB,\nlevel 3", *names[1:]])
    left.set_xlabel("seconds of\none build")
    for index, batch in enumerate(sorted({row["batch"] for row in measured})):
        mine = [row for row in measured if row["batch"] == batch]
        places = [names.index(row["engine"]) + 0.24 * index - 0.12 for row in mine]
        _intervals(right, mine, places, index + 1, f"batch {batch}")
    right.axvline(1, color="0.4", lw=1, ls="--")
    right.set_xlabel("speed over\nthe default")
    style.name_colors(left, right.get_legend_handles_labels()[0])
    spread = [row["speedup"]["median"] for row in measured]
    built = sorted(seconds.values())
    takeaway = f"Builds of {built[0]:.0f} to {built[-1]:.0f} s, engines of {min(spread):.2f} to {max(spread):.2f} times the default's speed"
    figure.suptitle(takeaway)
    return figure


def draw_fusion(rows: Sequence[Row]) -> style.Figure:
    """Speed of the fused form over the other one by batch size, with intervals.

    Raises:
        CourseError: the record has no rows about fusion.
    """
    found = [row for row in _those(rows, "latency") if row["group"].startswith("fusion") and "speedup" in row]
    if not found:
        raise CourseError("the record has no rows about fusion yet: measure more of them")
    kernels = {row["engine"]: row["kernels"] for row in _those(rows, "build")}
    labels = [f"{row['group'].partition(', ')[2]}, batch {row['batch']}" for row in found]
    figure, axes = style.subplots(1.4 + 0.3 * len(found))
    for index, group in enumerate(_unique(found, "group")):
        places = [place for place, row in enumerate(found) if row["group"] == group]
        mine = [found[place] for place in places]
        label = f"{kernels.get(mine[0]['over'], '?')} kernels as {kernels.get(mine[0]['engine'], '?')}"
        _intervals(axes, mine, places, index, label)
    axes.axvline(1, color="0.4", lw=1, ls="--")
    style.name_rows(axes, labels)
    axes.set_xlabel("speed of the fused form over the other one")
    style.name_colors(axes)
    speeds = [row["speedup"]["median"] for row in found]
    axes.set_title(f"The same function in fewer kernels is {min(speeds):.2f} to {max(speeds):.2f} times as fast")
    return figure


def _those(rows: Sequence[Row], table: str, **key: Any) -> list[Row]:
    """Rows of a table that have these values.

    Raises:
        CourseError: there are none.
    """
    wanted = {"table": table, **key}
    found = [row for row in rows if wanted.items() <= row.items() and "failed" not in row]
    if not found:
        raise CourseError(f"the record has no rows of {', '.join(map(str, wanted.values()))} yet: measure more of them")
    return found


def _unique(rows: Iterable[Row], key: str) -> list[str]:
    return list(dict.fromkeys(row[key] for row in rows))


def _intervals(axes: style.Axes, rows: Sequence[Row], places: Sequence[float], color: int, label: str) -> None:
    speeds = [row["speedup"] for row in rows]
    middle = [speed["median"] for speed in speeds]
    width = [[speed["median"] - speed["low"] for speed in speeds], [speed["high"] - speed["median"] for speed in speeds]]
    axes.errorbar(middle, places, xerr=width, fmt="o", ms=5, lw=1.5, capsize=3, color=style.color(color), label=label)
