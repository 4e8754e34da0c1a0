"""Reduced precision: calibration, Q/DQ nodes, casts, and lowering for ONNX Runtime.

Importing this package is light: each name is imported from its module the first time it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from course_lib._util.lazy_names import lazy

LOWERED = "course_lib.lowered_for"  # key in the metadata of a copy that `lower_for_onnxruntime` made

if TYPE_CHECKING:
    from course_lib.precision.calibration.calibrators import (
        Calibrator,
        EntropyCalibrator,
        MinMaxCalibrator,
        MSECalibrator,
        PercentileCalibrator,
        SearchingCalibrator,
        divergence,
    )
    from course_lib.precision.calibration.histogram import Histogram, StreamingHistogram
    from course_lib.precision.calibration.observation import Observation, calibrate, observe
    from course_lib.precision.calibration.plots import histogram_figure, kl_curve
    from course_lib.precision.calibration.trt_cache import read_cache, read_header, write_cache
    from course_lib.precision.calibration.trt_calibrators import trt_calibrator
    from course_lib.precision.casting import cast
    from course_lib.precision.qat import export_qat_onnx, quantize_aware, train
    from course_lib.precision.quantization.emulation import emulate
    from course_lib.precision.quantization.fake_quant import straight_through
    from course_lib.precision.quantization.lowering import cpu_features, lower_for_onnxruntime, lowering_helps
    from course_lib.precision.quantization.qdq import activations, fake_quantize, insert_qdq, scale_of

__getattr__, __dir__, __all__ = lazy(__name__)
