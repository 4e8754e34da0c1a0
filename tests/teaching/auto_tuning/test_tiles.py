"""Tilings worked out by hand, and the figures that show them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.teaching.auto_tuning.convolutions import draw_algorithms
from course_lib.teaching.auto_tuning.tiles import Tiling, padding_figure, wave_figure


def test_a_perfect_fit():
    fit = Tiling(256, 128, (64, 64), 8)
    assert (fit.tiles, fit.waves, fit.useful, fit.busy) == (8, 1, 1.0, 1.0)


def test_one_too_many_costs_a_tile_and_a_wave():
    over = Tiling(257, 128, (64, 64), 8)
    assert (over.tiles, over.waves, over.busy) == (10, 2, 10 / 16)
    assert over.useful == pytest.approx(257 * 128 / (10 * 4096))


def test_small_tiles_wait_for_memory_and_large_ones_for_products():
    assert Tiling(64, 64, (64, 64), 1).cost == 128 * 64
    assert Tiling(256, 128, (256, 128), 1).cost == 256 * 128
    assert Tiling(64, 64, (64, 64), 1, products_per_load=1).cost == 64 * 64


@given(st.integers(1, 5000), st.integers(1, 5000), st.integers(1, 300), st.integers(1, 300), st.integers(1, 200))
def test_shares_are_shares(m, n, rows, columns, multiprocessors):
    tiling = Tiling(m, n, (rows, columns), multiprocessors)
    assert 0 < tiling.useful <= 1 and 0 < tiling.busy <= 1
    assert tiling.tiles * rows * columns >= m * n


def test_sizes_are_checked():
    with pytest.raises(ValueError, match="at least 1"):
        Tiling(0, 1, (1, 1), 1)


def test_padding_is_drawn():
    (line,) = padding_figure([63, 64, 65], [64], "channels").axes[0].lines
    assert list(line.get_ydata()) == pytest.approx([100 * 63 / 64, 100, 100 * 65 / 128])


def test_waves_are_drawn_relative_to_the_cheapest():
    tilings = {"a": [Tiling(64 * n, 64, (64, 64), 1) for n in (1, 2)], "b": [Tiling(64 * n, 64, (128, 128), 1) for n in (1, 2)]}
    first, second = wave_figure(tilings, [1, 2]).axes[0].lines
    assert list(first.get_ydata()) == [1, 2] and list(second.get_ydata()) == [2, 2]


def test_algorithms_are_drawn():
    errors = {"float32": {"direct": 1e-7, "fft": 2e-7}, "float16": {"direct": 1e-4}}
    left, right = draw_algorithms({"direct": 2_000_000, "fft": 1_000_000}, errors, "title").axes
    assert [bar.get_width() for bar in left.patches] == [2, 1]
    assert [list(line.get_xdata()) for line in right.lines] == [[1e-7, 2e-7], [1e-4]]
