"""The networks and the data that the course works on, and their way to ONNX.

Importing this package is light. The networks need torch, and each is imported the first time its name is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from course_lib.lazy import lazy
from course_lib.models.digit_video import Frame, video
from course_lib.models.digits import Digits, digits, fresh_digits

if TYPE_CHECKING:
    from course_lib.models.bert import bert_base
    from course_lib.models.export import Signature, export_onnx
    from course_lib.models.grid_detector import detector
    from course_lib.models.residual_cnn import classifier
    from course_lib.models.resnet import resnet50
    from course_lib.models.transformer import encoder
    from course_lib.models.u_net import unet
    from course_lib.models.vision_transformer import vit_b16

__all__ = [
    "Digits",
    "Frame",
    "Signature",
    "bert_base",
    "classifier",
    "detector",
    "digits",
    "encoder",
    "export_onnx",
    "fresh_digits",
    "resnet50",
    "unet",
    "video",
    "vit_b16",
]

# where each name comes from that needs torch
_LAZY = {
    "Signature": "export",
    "bert_base": "bert",
    "classifier": "residual_cnn",
    "detector": "grid_detector",
    "encoder": "transformer",
    "export_onnx": "export",
    "resnet50": "resnet",
    "unet": "u_net",
    "vit_b16": "vision_transformer",
}


__getattr__, __dir__ = lazy(__name__, _LAZY)
