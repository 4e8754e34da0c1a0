"""The convolution of lecture 16: both forms are valid, compute nearly the same, and differ in what the kernel reads."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime

from course_lib.benchmark import relative_error
from course_lib.engines import build
from course_lib.recipe import Recipe
from course_lib.teaching.low_bits.convolution import one_convolution


def test_fp8_computes_nearly_the_same_as_fp16() -> None:
    x = np.random.default_rng(1).uniform(-1, 1, (8, 64, 32, 32)).astype(np.float16)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    results = {}
    for kind in ("FP16", "FP8"):
        onnx.checker.check_model(one_convolution(kind))
        session = onnxruntime.InferenceSession(one_convolution(kind).SerializeToString(), options, ["CPUExecutionProvider"])
        results[kind] = session.run(None, {"x": x})[0].astype(np.float32)
    assert 0 < relative_error(results["FP16"], results["FP8"]) < 0.1


def test_the_kernel_of_the_convolution_reads_fp8() -> None:
    for kind, dtype in (("FP16", "Half"), ("FP8", "FP8")):
        plan = build(one_convolution(kind), Recipe(precision="fp16", targets=["sm89"]), backend="tensorrt_rtx")
        kernel = next(kernel for kernel in plan.layers.kernels if "/conv" in kernel.onnx_nodes)
        assert kernel.inputs[0].dtype == dtype
