"""The course's networks as ONNX, exported once for all test modules and processes: torch takes 2 to 7 seconds for each."""

from __future__ import annotations

from functools import cache
from typing import Any

import onnx

from course_lib.models import classifier, encoder, export_onnx, resnet50
from tests import unchanged


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
    def export() -> bytes:
        made = export_onnx(network(name), opset=opset, dtype=dtype, keep_batchnorm=keep_batchnorm, **options)
        return made.SerializeToString()

    key = unchanged.key("export", name, opset, dtype, keep_batchnorm, options, files=_sources())
    return onnx.load_from_string(unchanged.made(key, export))


@cache
def _sources() -> frozenset[Any]:
    return frozenset(unchanged.imported("import course_lib.models"))
