"""The reference of lab 09, made by code: the given detector, in INT8 if that is faster, with settings for one frame per call."""

from __future__ import annotations

import itertools
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from course_lib.labs.lab09_capstone.settings import FILE, Settings
from course_lib.models.digit_video import prepared, video
from course_lib.precision import lowering_helps
from course_lib.recipe import Precision, Profile, Recipe

if TYPE_CHECKING:
    from onnx import ModelProto

OPSET = 17  # the newest that every builder of the course reads, and exported within a second
CALIBRATION_SEED, CALIBRATION_FRAMES = 9, 128
SETTINGS = Settings(confidence=0.3, overlap=0.5, queue=2)
# What the service starts from: frames are enlarged to 160 pixels. A call then costs 1.5 times as much on a CPU, and more boxes are
# false than at 96 to 128 pixels, where the detector was trained.
FIRST = SETTINGS.model_copy(update={"size": 160})


def write(folder: Path) -> None:
    """model.onnx, recipe.toml and settings.toml."""
    (folder / "model.onnx").write_bytes(_model())
    recipe().save(folder / "recipe.toml")
    SETTINGS.save(folder / FILE)


def recipe(size: int = SETTINGS.size, precision: Precision | None = None) -> Recipe:
    """A recipe for one frame per call, by default in INT8 if this machine multiplies 8-bit integers faster, otherwise in FP32."""
    shape = (1, 1, size, size)
    profile = Profile(frames={"min": shape, "opt": shape, "max": shape})
    return Recipe(precision=precision or ("int8" if lowering_helps() else "fp32"), profiles=(profile,))


def exported(size: int) -> ModelProto:
    """The given detector for frames with this side in pixels, as exported."""
    from course_lib.models import detector, export_onnx

    return export_onnx(detector(size), opset=OPSET)


def calibration_frames(side: int = SETTINGS.size) -> np.ndarray:
    """Frames of a video that the examiner does not use, prepared for a detector: float32 ``(128, 1, side, side)``, 0 to 1."""
    frames = itertools.islice(video(CALIBRATION_SEED, split="train", scene_frames=1), CALIBRATION_FRAMES)
    return prepared(np.stack([frame.image for frame in frames]), side)


@cache
def _model() -> bytes:
    from course_lib.precision import MinMaxCalibrator, activations, insert_qdq, observe

    network = exported(SETTINGS.size)
    if not lowering_helps():
        return bytes(network.SerializeToString())
    batches = [{"frames": part} for part in np.split(calibration_frames(), 16)]
    seen = observe(network, batches, tensors=activations(network), progress=False)
    return bytes(insert_qdq(network, seen.ranges(MinMaxCalibrator())).SerializeToString())
