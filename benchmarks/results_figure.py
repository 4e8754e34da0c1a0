"""README's results as a dot plot, docs/results.svg: drawn by `readme.py` from the rows of the table in docs/benchmarks.md."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING

from benchmarks.markdown import Data
from benchmarks.readme_tables import headline, rival, title
from course_lib import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_GRAY = "#666666"
_HUES = (style.COLORS[5], style.COLORS[0], style.COLORS[1])  # from the smallest batch to the largest


def results_figure() -> tuple[str, str]:
    """The picture as SVG text, and its last line, which says from which numbers it was drawn."""
    speeds = {key: rival(row) for key, row in headline().items()}
    source = f"<!-- numbers {sha256(repr(sorted(speeds.items())).encode()).hexdigest()[:16]} -->\n"
    return style.svg(_draw(speeds)) + source, source


def _draw(speeds: Mapping[tuple[str, str, int], Data]) -> Figure:
    batches = sorted({batch for *_, batch in speeds})
    rows = list(dict.fromkeys(key[:2] for key in speeds))
    figure = style.figure(1.5 + 0.28 * len(rows), width=3.8)  # a telephone shows it as it is
    axes = figure.add_subplot()
    axes.axvline(1, color=_GRAY, lw=1)
    for index, batch in enumerate(batches):
        mine = {key: speed for key, speed in speeds.items() if key[2] == batch}
        places = [rows.index(key[:2]) + 0.24 * (index - (len(batches) - 1) / 2) for key in mine]
        axes.hlines(places, [s["low"] for s in mine.values()], [s["high"] for s in mine.values()], color=_HUES[index])
        axes.plot([s["median"] for s in mine.values()], places, "o", color=_HUES[index], ms=5, label=f"batch {batch}")
    axes.set_yticks(range(len(rows)), [title(*row) for row in rows])
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", color="#eeeeee")
    axes.invert_yaxis()
    axes.set_xlabel("times as fast as the fastest PyTorch variant\nin FP16; left of the line, PyTorch is faster")
    won = sum(speed["low"] > 1 for speed in speeds.values())
    style.name_colors(axes)
    figure.suptitle(f"TensorRT is fastest in {won} of {len(speeds)} cases")
    return figure
