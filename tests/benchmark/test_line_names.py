"""Names at the ends of lines are whole and apart, whichever way the lines run."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from matplotlib.figure import Figure

from course_lib import style
from course_lib.benchmark.queueing import draw_over_load
from course_lib.benchmark.statistics import Measurement
from course_lib.profiling.layer_tables.memory_traffic import RoundTrip, Traffic
from course_lib.teaching.auto_tuning.tiles import Tiling, padding_figure, wave_figure
from course_lib.teaching.benchmarking.figures import batch_sweep, distribution, over_calls
from course_lib.teaching.engine_figures import draw_batches
from course_lib.teaching.fusion import growth
from course_lib.teaching.why import draw_break_even
from tests.content.test_key_figures import faults

SIZES = (1, 2, 4, 8, 16, 32, 64)


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
def test_no_name_of_a_line_is_cut_or_under_another(name: str) -> None:
    rising = [1.0, 1.5, 2.5, 4.0, 7.0, 13.0, 25.0]
    assert [faults(style.svg(FIGURES[name](values))) for values in (rising, rising[::-1])] == [[], []]
