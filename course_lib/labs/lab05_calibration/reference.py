"""The reference of lab 05, made by code. It leaves out scans that are brighter than ink can be, and then clips nothing."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from course_lib.labs.lab05_calibration.given import FULL_INK, calibration_scans
from course_lib.recipe import Profile, Recipe

if TYPE_CHECKING:
    import onnx

    from course_lib.precision import Observation

BRIGHTEST = 2 * FULL_INK  # a good scan ends near 310 counts, the two bright ones reach 4,000 and more
OPSET = 17  # the newest that every builder of the course reads, and exported within a second
CALIBRATOR = '''"""Percentile calibration."""

import numpy as np


def percentile(counts, bin_width, percent):
    inside = np.cumsum(counts)
    last = np.searchsorted(inside, percent / 100 * inside[-1])
    return (last + 1) * bin_width
'''


def write(folder: Path) -> None:
    """calibrator.py, model.onnx and recipe.toml."""
    (folder / "calibrator.py").write_text(CALIBRATOR, encoding="utf-8")
    (folder / "model.onnx").write_bytes(_quantized())
    recipe().save(folder / "recipe.toml")


def recipe() -> Recipe:
    """INT8, and the batches of the service of lab 01."""
    shapes = {bound: (batch, 1, 32, 32) for bound, batch in (("min", 1), ("opt", 8), ("max", 32))}
    return Recipe(precision="int8", profiles=(Profile(image=shapes),))


@cache
def observed(clean: bool = True) -> tuple[onnx.ModelProto, Observation]:
    """The float network, and the histograms of its tensors over the scans that the reference keeps, or over all of them."""
    from course_lib.models import classifier, export_onnx
    from course_lib.precision import activations, observe

    model = export_onnx(classifier("wide"), opset=OPSET)
    scans = calibration_scans()
    kept = scans.max((1, 2, 3)) <= BRIGHTEST
    images = (scans[kept] if clean else scans).astype(np.float32) / FULL_INK
    batches = [{"image": images[begin : begin + 50]} for begin in range(0, len(images), 50)]
    return model, observe(model, batches, tensors=activations(model), progress=False)


@cache
def _quantized() -> bytes:
    from course_lib.precision import MinMaxCalibrator, insert_qdq

    model, histograms = observed()
    return bytes(insert_qdq(model, histograms.ranges(MinMaxCalibrator())).SerializeToString())
