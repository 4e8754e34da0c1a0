"""The figures say what the numbers say."""

from __future__ import annotations

import numpy as np
import pytest

from course_lib import style
from course_lib.teaching.low_bits.figures import draw_channels, draw_costs, draw_grids, draw_search, draw_size
from course_lib.teaching.low_bits.loss import Cost


def test_grids_are_divided_by_their_largest_number():
    axes = draw_grids({"E2M1": np.array([-6.0, 0, 0.5, 6])}, "codes").axes[0]
    drawn = [segment[0][0] for segment in axes.collections[0].get_segments()]
    assert drawn == pytest.approx([0, 0.5 / 6, 1]) and axes.texts[0].get_text() == "3"


def test_costs_have_their_intervals():
    costs = {"INT8": {"weights": Cost(0.1, 0.05)}, "E4M3": {"weights": Cost(0.0, 0.01)}}
    axes = draw_costs(costs, "costs").axes[0]
    assert [bar.get_label() for bar in axes.containers] == ["INT8", "E4M3"]
    low, high = axes.containers[0][2][0].get_segments()[0][:, 0]
    assert (low, high) == pytest.approx((0.05, 0.15))


def test_the_best_scale_is_marked():
    axes = draw_search({"row 0": {0.5: 4.0, 0.9: 1.0, 1.0: 2.0}}, "search").axes[0]
    curve, best = axes.get_lines()
    assert curve.get_ydata().tolist() == [2, 0.5, 1] and best.get_xdata() == [0.9]


def test_channels_and_size():
    channels = draw_channels({"before": (np.array([60.0, 1]), np.array([0.1, 1]))}, "equal")
    assert channels.axes[0].get_lines()[0].get_ydata().tolist() == [60, 1]
    size = draw_size({"NVFP4": (0.7, Cost(0.002, 0.001))}, "size")
    assert style.alt_text(size).startswith("size. more bits per byte than FP32")
    for drawn in (channels, size):
        assert style.png(drawn).startswith(b"\x89PNG")
