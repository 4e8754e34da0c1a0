"""Tilings worked out by hand, and names of kernels as TensorRT 8.6.0 chose them on an H200."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.teaching.auto_tuning.tactics import TacticName, draw_tactics, read_tactic
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


NAMES = {
    "sm80_xmma_fprop_implicit_gemm_f16f16_f16f16_f16_nhwckrsc_nhwc_tilesize128x128x32_stage4_warpsize2x2x1_g1_tensor16x8x16": TacticName(
        "sm80", "implicit_gemm", "128x128x32"
    ),
    "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize64x64x32_cgasize1x1x1_warpgroupsize1x1x1_beta0": TacticName(
        "sm90", "gemm", "64x64x32"
    ),
    "sm90_xmma_fprop_image_first_layer_f16f16_f32_f16_nhwckrsc_nhwc_hmma_k64c4r7s7_stride2x2_tile16x64x64_tensor1688": TacticName(
        "sm90", "image_first_layer", "16x64x64"
    ),
    "sm50_xmma_pooling_max_nhwc_FP32FP32_WINDOWSIZE_3_NOT_PROPAGATE_NAN_2D": TacticName("sm50", "pooling"),
    "0x00000000000003ea": TacticName(),
    "": TacticName(),
}


@pytest.mark.parametrize("name", NAMES)
def test_real_names(name):
    assert read_tactic(name) == NAMES[name]


def test_times_of_the_same_tactic_are_summed_and_the_rest_is_one_bar():
    rows = [{"tactic": f"sm80_gemm_tilesize{n}x64x32", "ms": n} for n in (64, 64, 32, 16, 8)]
    axes = draw_tactics(rows, "title", most=2).axes[0]
    assert [bar.get_width() for bar in axes.patches] == [128, 32, 24]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["sm80 gemm 64x64x32", "sm80 gemm 32x64x32", "all others"]
    assert [text.get_text() for text in axes.texts] == ["2 layers", "1 layer", "2 layers"]
