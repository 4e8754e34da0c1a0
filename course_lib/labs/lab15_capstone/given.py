"""What lab 15 starts from: the given detector as exported, the first version's settings, and frames for calibration."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from course_lib.labs.lab15_capstone.settings import Settings
from course_lib.models.digit_video import prepared, video
from course_lib.precision import lowering_helps
from course_lib.recipe import Precision, Profile, Recipe

if TYPE_CHECKING:
    from onnx import ModelProto

OPSET = 17  # the newest that every builder of the course reads, and exported within a second
# The first version enlarges frames to 160 pixels. A call then costs 1.5 times as much on a CPU, and more boxes are false than at 96 to
# 128 pixels, where the detector was trained.
FIRST = Settings(size=160, confidence=0.3, overlap=0.5, queue=2)
_SEED, _FRAMES = 9, 128


def recipe(size: int, precision: Precision | None = None) -> Recipe:
    """A recipe for one frame per call, by default in INT8 if this machine multiplies 8-bit integers faster, otherwise in FP32."""
    shape = (1, 1, size, size)
    profile = Profile(frames={"min": shape, "opt": shape, "max": shape})
    return Recipe(precision=precision or ("int8" if lowering_helps() else "fp32"), profiles=(profile,))


def exported(size: int) -> ModelProto:
    """The given detector for frames with this side in pixels, as exported."""
    from course_lib.models import detector, export_onnx

    return export_onnx(detector(size), opset=OPSET)


def calibration_frames(side: int = 128) -> np.ndarray:
    """Frames of a video that the examiner does not use, prepared for a detector: float32 ``(128, 1, side, side)``, 0 to 1."""
    frames = itertools.islice(video(_SEED, split="train", scene_frames=1), _FRAMES)
    return prepared(np.stack([frame.image for frame in frames]), side)
