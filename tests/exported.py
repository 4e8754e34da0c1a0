"""The course's networks as ONNX, once for all test modules; `exports_once` shares them with other processes."""

from functools import cache
from typing import Any

import numpy as np
import onnx

from benchmarks.yardsticks import resnet50
from course_lib.models import classifier, digits, encoder, export_onnx
from course_lib.recipe import Profile, Recipe


@cache
def network(name: str) -> Any:
    """``"small"``, ``"wide"``, ``"encoder"`` or ``"resnet50"``; for reading only."""
    if name in ("small", "wide"):
        return classifier(name)  # type: ignore[arg-type]
    return encoder() if name == "encoder" else resnet50()


def exported(
    name: str, opset: int | None = None, dtype: str = "fp32", keep_batchnorm: bool = False, **options: Any
) -> onnx.ModelProto:
    """What `export_onnx` makes of `network`; for reading only."""
    return _exported(name, opset, dtype, keep_batchnorm, **options)


@cache
def _exported(name: str, opset: int | None, dtype: Any, keep_batchnorm: bool, **options: Any) -> onnx.ModelProto:
    return export_onnx(network(name), opset=opset, dtype=dtype, keep_batchnorm=keep_batchnorm, **options)


def recipe_for(name: str, precision: Any = "fp32") -> Recipe:
    """The shapes that tests build a network for."""
    shapes: dict[str, Any] = {"image": {"min": (1, 1, 32, 32), "opt": (8, 1, 32, 32), "max": (32, 1, 32, 32)}}
    if name == "encoder":
        shapes = {"tokens": {"min": (1, 16, 32), "opt": (8, 32, 32), "max": (32, 48, 32)}}
    return Recipe(precision=precision, profiles=(Profile(shapes),))


def inputs(name: str, split: Any) -> np.ndarray:
    return digits(split).tokens() if name == "encoder" else digits(split).images


@cache
def min_max(name: str, opset: int | None = None) -> dict[str, float]:
    """Ranges of the activations over 256 training digits."""
    from course_lib.precision import MinMaxCalibrator, activations, observe

    model, data = exported(name, opset), inputs(name, "train")
    batches = [{model.graph.input[0].name: data[start : start + 64]} for start in range(0, 256, 64)]
    return dict(observe(model, batches, tensors=activations(model), progress=False).ranges(MinMaxCalibrator()))


@cache
def quantized(name: str, opset: int | None = None) -> onnx.ModelProto:
    """With a pair on each activation of `min_max`; for reading only."""
    from course_lib.precision import insert_qdq

    return insert_qdq(exported(name, opset), min_max(name, opset))
