"""No legend covers a point of its lines, whichever way the lines run."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from matplotlib.figure import Figure

from course_lib.benchmark.queueing import draw_over_load
from course_lib.benchmark.statistics import Measurement
from course_lib.profiling.layer_tables.memory_traffic import RoundTrip, Traffic
from course_lib.teaching.auto_tuning.tiles import Tiling, padding_figure, wave_figure
from course_lib.teaching.benchmarking.figures import batch_sweep, distribution, over_calls
from course_lib.teaching.engine_figures import draw_batches
from course_lib.teaching.fusion import growth
from course_lib.teaching.why import draw_break_even

SIZES = (1, 2, 4, 8, 16, 32, 64)


def covered(figure: Figure) -> list[str]:
    """Names of the lines with points under a legend."""
    figure.canvas.draw()
    found = []
    legends = [*figure.legends, *(axes.get_legend() for axes in figure.axes if axes.get_legend())]
    for box in (legend.get_window_extent() for legend in legends):
        for axes in figure.axes:
            for line in axes.get_lines():
                points = line.get_transform().transform(np.column_stack([line.get_xdata(), line.get_ydata()]).astype(float))
                along = [a + (b - a) * t for a, b in itertools.pairwise(points) for t in np.linspace(0, 1, 50)]
                if any(box.contains(x, y) for x, y in along):
                    found.append(str(line.get_label()))
    return found


def _growth(values: list[float]) -> Figure:
    traffics = [Traffic((RoundTrip("t", "", {"x": int(1e6 * value)}, 0, {}),)) for value in values]
    return growth(SIZES, {"rising": traffics, "falling": traffics[::-1]}, "size", "both ways")


def _batches(values: list[float]) -> Figure:
    row = {"table": "latency", "group": "profiles"}
    rows = [
        {**row, "engine": f"tuned at {k}", "batch": n, "ms": ms}
        for k, way in enumerate((values, values[::-1]))
        for n, ms in zip(SIZES, way, strict=True)
    ]
    return draw_batches(rows)


FIGURES: dict[str, Callable[[list[float]], Figure]] = {
    "over_calls": lambda v: over_calls({"a": np.array(v), "b": np.array(v[::-1])}, "t"),
    "distribution": lambda v: distribution(Measurement(np.repeat(v, 30)), "t"),
    "batch_sweep": lambda v: batch_sweep({n: Measurement(np.array([ms, 1.1 * ms])) for n, ms in zip(SIZES, v, strict=True)}),
    "break_even": lambda v: draw_break_even({str(ms): (ms, 10 / ms) for ms in v}, 1000, "t"),
    "over_load": lambda v: draw_over_load({0.1 + 0.1 * k: np.array([ms, 2 * ms]) for k, ms in enumerate(v)}, 1.0),
    "wave": lambda v: wave_figure({"t": [Tiling(int(1000 * ms), 256, (64, 64), 132) for ms in v]}, SIZES),
    "padding": lambda v: padding_figure(range(1, 257), (8, 64, 128), "channels"),
    "growth": _growth,
    "draw_batches": _batches,
}


@pytest.mark.parametrize("name", FIGURES)
def test_a_legend_covers_no_line(name: str) -> None:
    rising = [1.0, 1.5, 2.5, 4.0, 7.0, 13.0, 25.0]
    assert covered(FIGURES[name](rising)) == [] and covered(FIGURES[name](rising[::-1])) == []
