"""The course's networks as ONNX, once for all test modules; `exports_once` shares them with other processes."""

from __future__ import annotations

from functools import cache
from typing import Any

import onnx

from course_lib.models import classifier, encoder, export_onnx, resnet50
from tests.warm_processes import list_operators_once

list_operators_once()


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
