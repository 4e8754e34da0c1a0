"""The reference of lab 15, made by code: the given detector, in INT8 if that is faster, with settings for one frame per call."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from course_lib.labs.lab15_capstone.given import FILE, Settings, calibration_frames, exported, recipe
from course_lib.precision import lowering_helps

SETTINGS = Settings(size=128, confidence=0.3, overlap=0.5, queue=2)


def write(folder: Path) -> None:
    """model.onnx, recipe.toml and settings.toml."""
    (folder / "model.onnx").write_bytes(_model())
    recipe(SETTINGS.size).save(folder / "recipe.toml")
    SETTINGS.save(folder / FILE)


@cache
def _model() -> bytes:
    from course_lib.precision import MinMaxCalibrator, activations, insert_qdq, observe

    network = exported(SETTINGS.size)
    if not lowering_helps():
        return bytes(network.SerializeToString())
    batches = [{"frames": part} for part in np.split(calibration_frames(SETTINGS.size), 16)]
    seen = observe(network, batches, tensors=activations(network), progress=False)
    return bytes(insert_qdq(network, seen.ranges(MinMaxCalibrator())).SerializeToString())
