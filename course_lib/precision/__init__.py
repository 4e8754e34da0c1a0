"""Reduced precision: calibration, Q/DQ nodes, casts, and lowering for ONNX Runtime.

Importing this package is light: each name is imported from its module the first time it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from course_lib.lazy import lazy

LOWERED = "course_lib.lowered_for"  # key in the metadata of a copy that `lower_for_onnxruntime` made

if TYPE_CHECKING:
    from course_lib.precision.calibration import Observation, Ranges, calibrate, observe
    from course_lib.precision.calibrators import (
        Calibrator,
        EntropyCalibrator,
        MinMaxCalibrator,
        MSECalibrator,
        PercentileCalibrator,
        SearchingCalibrator,
        divergence,
    )
    from course_lib.precision.casting import cast
    from course_lib.precision.emulation import emulate
    from course_lib.precision.fake_quant import straight_through
    from course_lib.precision.histogram import Histogram, StreamingChannelHistograms, StreamingHistogram
    from course_lib.precision.lowering import cpu_features, lower_for_onnxruntime, lowering_helps
    from course_lib.precision.plots import histogram_figure, kl_curve
    from course_lib.precision.qat import export_qat_onnx, quantize_aware, train
    from course_lib.precision.qdq import activations, fake_quantize, insert_qdq, scale_of
    from course_lib.precision.trt_cache import read_cache, read_header, write_cache
    from course_lib.precision.trt_calibrators import trt_calibrator

_LAZY = {
    "Calibrator": "calibrators",
    "EntropyCalibrator": "calibrators",
    "Histogram": "histogram",
    "MSECalibrator": "calibrators",
    "MinMaxCalibrator": "calibrators",
    "Observation": "calibration",
    "PercentileCalibrator": "calibrators",
    "Ranges": "calibration",
    "SearchingCalibrator": "calibrators",
    "StreamingChannelHistograms": "histogram",
    "StreamingHistogram": "histogram",
    "activations": "qdq",
    "calibrate": "calibration",
    "cast": "casting",
    "cpu_features": "lowering",
    "divergence": "calibrators",
    "emulate": "emulation",
    "export_qat_onnx": "qat",
    "fake_quantize": "qdq",
    "histogram_figure": "plots",
    "insert_qdq": "qdq",
    "kl_curve": "plots",
    "lower_for_onnxruntime": "lowering",
    "lowering_helps": "lowering",
    "observe": "calibration",
    "quantize_aware": "qat",
    "read_cache": "trt_cache",
    "read_header": "trt_cache",
    "scale_of": "qdq",
    "straight_through": "fake_quant",
    "train": "qat",
    "trt_calibrator": "trt_calibrators",
    "write_cache": "trt_cache",
}

__all__ = [
    "Calibrator",
    "EntropyCalibrator",
    "Histogram",
    "MSECalibrator",
    "MinMaxCalibrator",
    "Observation",
    "PercentileCalibrator",
    "Ranges",
    "SearchingCalibrator",
    "StreamingChannelHistograms",
    "StreamingHistogram",
    "activations",
    "calibrate",
    "cast",
    "cpu_features",
    "divergence",
    "emulate",
    "export_qat_onnx",
    "fake_quantize",
    "histogram_figure",
    "insert_qdq",
    "kl_curve",
    "lower_for_onnxruntime",
    "lowering_helps",
    "observe",
    "quantize_aware",
    "read_cache",
    "read_header",
    "scale_of",
    "straight_through",
    "train",
    "trt_calibrator",
    "write_cache",
]


__getattr__, __dir__ = lazy(__name__, _LAZY)
