"""Names of kernels as TensorRT 8.6.0 chose them on an H200, and hostile ones."""

import pytest

from course_lib.teaching.auto_tuning.tactics import TacticName, draw_tactics, read_tactic

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
