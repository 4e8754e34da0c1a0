"""Tilings worked out by hand, and the figures that show them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.teaching.auto_tuning.tiles import Tiling


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
