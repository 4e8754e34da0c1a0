"""The network of lab 04 as ONNX, as it is given to the learner."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

OPSET = 17  # the newest that every builder of the course reads, and names of nodes that are the same on every machine


@cache
def given() -> onnx.ModelProto:
    """The network as it was given, in FP32."""
    from course_lib.labs.lab04_mixed_precision.network import loud_encoder
    from course_lib.models import export_onnx

    return export_onnx(loud_encoder(), opset=OPSET)
