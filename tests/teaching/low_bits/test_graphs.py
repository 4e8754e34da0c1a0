"""Graphs in few bits compute what their codes say, and the compiler builds, or rejects, what lecture 16 says."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

from course_lib.engines import Plan, build
from course_lib.errors import CourseError
from course_lib.recipe import Recipe
from course_lib.teaching.low_bits.graphs import Kind, Stored, one_product, with_low_bits

RNG = np.random.default_rng(0)
WEIGHT = RNG.standard_normal((96, 64)).astype(np.float32)
X = RNG.standard_normal((64, 64)).astype(np.float16)


def stored(kind: Kind) -> Stored:
    """Codes of a random weight that are exact in each format: -3 to 3, with scales that are powers of two."""
    codes = RNG.integers(-3, 4, (96, 64)).astype(np.float32)
    blocks = {"FP8": (1, 1), "INT4": (96, 2), "MXFP8": (96, 2), "NVFP4": (96, 4)}[kind]
    scales = 2.0 ** RNG.integers(-3, 3, blocks)
    return Stored(kind, codes, scales, 0.25 if kind == "NVFP4" else 1.0)


def run(model: onnx.ModelProto) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": X})[0], np.float32)


def built(model: onnx.ModelProto, target: str) -> Plan:
    return build(model, Recipe(precision="fp16", targets=[target]), backend="tensorrt_rtx")


def product_reads(plan: Plan) -> set[str]:
    """Types that the kernel of the product reads."""
    return {tensor.dtype for tensor in plan.layers.kernels[-1].inputs}


@pytest.mark.parametrize("kind", ["FP8", "INT4"])
def test_a_weight_in_few_bits_is_its_values(kind: Kind) -> None:
    original, weight = one_product(WEIGHT), stored(kind)
    before = original.SerializeToString()
    low = with_low_bits(original, {"weight": weight})
    assert original.SerializeToString() == before
    want = X.astype(np.float32) @ weight.values().T
    assert np.linalg.norm(run(low) - want) / np.linalg.norm(want) < 1e-2  # ONNX Runtime rounds inputs for INT4


def test_an_input_in_fp8_is_rounded_to_its_range() -> None:
    weight = stored("FP8")
    low = with_low_bits(one_product(WEIGHT), {"weight": weight}, {"weight": float(np.abs(X).max())})
    want = X.astype(np.float32) @ weight.values().T
    assert 5e-3 < np.linalg.norm(run(low) - want) / np.linalg.norm(want) < 0.05


def test_products_read_the_format_where_the_hardware_has_it() -> None:
    reads = {
        kind: product_reads(built(with_low_bits(one_product(WEIGHT), {"weight": stored(kind)}, {"weight": 4.0}), "sm120"))
        for kind in ("MXFP8", "NVFP4")
    }
    assert reads == {"MXFP8": {"Half"}, "NVFP4": {"FP4", "FP8"}}
    fp8 = built(with_low_bits(one_product(WEIGHT), {"weight": stored("FP8")}, {"weight": 4.0}), "sm89")
    assert any("FP8" in {tensor.dtype for tensor in kernel.inputs} for kernel in fp8.layers.kernels)


def test_weights_alone_are_fused_in_int4_and_expanded_in_nvfp4() -> None:
    int4 = built(with_low_bits(one_product(WEIGHT), {"weight": stored("INT4")}), "sm89").layers.kernels
    nvfp4 = built(with_low_bits(one_product(WEIGHT), {"weight": stored("NVFP4")}), "sm120").layers.kernels
    assert len(int4) == 1 and len(nvfp4) == 2 and not nvfp4[0].inputs


@pytest.mark.parametrize(("kind", "target", "word"), [("NVFP4", "sm89", "fp4_e2m1"), ("INT4", "sm75", "int4")])
def test_a_target_without_the_format_is_named(kind: Kind, target: str, word: str) -> None:
    with pytest.raises(CourseError, match=rf"Cannot compile for target\(s\) {target}.*{word}"):
        built(with_low_bits(one_product(WEIGHT), {"weight": stored(kind)}), target)
