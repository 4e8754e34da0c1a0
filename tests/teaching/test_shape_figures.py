"""The figures say what the numbers say."""

from __future__ import annotations

import numpy as np
import pytest

from course_lib import style
from course_lib.recipe import ShapeRange
from course_lib.teaching.shapes import latency_map, latency_over_size, traffic

RANGE = ShapeRange(min=(1, 32), opt=(4, 32), max=(8, 32))


def labels(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_the_curve_shows_the_range_and_the_cheapest_size():
    figure = latency_over_size({1: 2.0, 4: 4.0, 8: 10.0}, RANGE, rejected=[9, 12], item="digit")
    calls, each = figure.axes
    assert figure.get_suptitle() == "Profile from 1 to 8; the time per digit is shortest at batch 4"
    drawn = {line.get_label(): line for line in calls.get_lines()}
    assert drawn["answered"].get_ydata().tolist() == [2, 4, 10]
    assert drawn["rejected"].get_xdata().tolist() == [9, 12]
    assert set(drawn["opt: 4"].get_xdata()) == {4}
    assert {line.get_label(): line for line in each.get_lines()}["answered"].get_ydata().tolist() == [2, 1, 1.25]
    assert style.png(figure).startswith(b"\x89PNG")


GRID = {(n, s): float(n * s) for n in (1, 4, 16) for s in (8, 32)}


def test_the_map_frames_the_cells_that_a_profile_holds():
    figure = latency_map(GRID, {"small": ((1, 1), (4, 10)), "all": ((1, 1), (16, 32))}, names=("batch", "sequence"))
    axes = figure.axes[0]
    assert axes.get_title() == "16 x 32 holds 64 times as much as 1 x 8 and takes 64 times as long"
    frames = [(p.get_x(), p.get_y(), p.get_width(), p.get_height()) for p in axes.patches]
    assert frames == [pytest.approx((-0.45, -0.45, 0.9, 1.9)), pytest.approx((-0.45, -0.45, 1.9, 2.9))]
    assert labels(axes) == ["small: 1 x 1 to 4 x 10", "all: 1 x 1 to 16 x 32"]
    assert {text.get_text() for text in axes.texts} >= {"8", "512"}


SIZES = np.array([1, 1, 2, 5, 9, 9, 9, 9])


def test_traffic_is_colored_by_the_profile_that_takes_it():
    axes = traffic(SIZES, [2, 5]).axes[0]
    assert labels(axes) == ["padded to 2: 38 %", "padded to 5: 12 %", "rejected: 50 %"]
    assert axes.get_title() == "Size 9 is 50 % of the requests, the largest is 9"
