"""The generated day of requests, what a padded call costs, and figures that say what the numbers say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib import style
from course_lib.recipe import ShapeRange
from course_lib.teaching.shapes import latency_map, latency_over_size, mail_day, padded_latency, traffic

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


def test_shares_are_those_of_the_description():
    sizes = mail_day(0, requests=20_000)
    shares = [(sizes <= 3).mean(), (sizes == 5).mean(), (sizes == 9).mean(), (sizes >= 20).mean()]
    assert np.allclose(shares, [0.18, 0.52, 0.22, 0.08], atol=0.012)  # three standard deviations of the largest


def test_a_hump_of_a_busy_machine_is_no_border():
    quiet = {1: 1.0, 5: 2.0, 8: 3.0, 16: 5.0, 64: 20.0}
    assert padded_latency(quiet) == quiet, "a curve that only rises stays as it is"
    assert padded_latency({**quiet, 8: 9.0}) == {**quiet, 8: 5.0}, "a call of 8 may be padded to 16"
    assert padded_latency({**quiet, 64: 40.0}) == {**quiet, 64: 40.0}, "nothing is larger than the largest"

    def best_border(latency):
        ms = np.interp(np.arange(65), list(latency), list(latency.values()))
        up_to = np.bincount(mail_day(0), minlength=65).cumsum()
        return min(range(1, 64), key=lambda end: up_to[end] * ms[end] + (up_to[-1] - up_to[end]) * ms[64])

    sizes = (1, 2, 3, 5, 8, 9, 12, 16, 24, 32, 48, 64)
    true = {n: 0.3 * n for n in sizes}
    disturbed = {**true, 9: 6.0}  # twice the time of a call of 9
    assert best_border(true) == 9 and best_border(disturbed) != 9, "the hump moved the border"
    assert best_border(padded_latency(disturbed)) in (9, 12)


@given(st.dictionaries(st.integers(1, 64), st.floats(0.01, 100), min_size=1))
def test_a_padded_price_never_falls_and_never_exceeds_its_measurement(latency):
    price = padded_latency(latency)
    assert list(price) == sorted(latency) and list(price.values()) == sorted(price.values())
    assert all(price[size] <= latency[size] for size in latency)
