"""The networks and the data that the course works on, and their way to ONNX.

Importing this package is light. The networks need torch, and each is imported the first time its name is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from course_lib._util.lazy_names import lazy
from course_lib.models.digit_dataset import Digits, digits, fresh_digits
from course_lib.models.digit_video import Frame, video
from course_lib.models.gpt_generation import CachedSession
from course_lib.models.text_corpus import course_text

if TYPE_CHECKING:
    from course_lib.models.export import export_onnx
    from course_lib.models.gpt import decoder
    from course_lib.models.gpt_onnx import export_cached
    from course_lib.models.grid_detector import detector
    from course_lib.models.residual_cnn import classifier
    from course_lib.models.signature import Signature
    from course_lib.models.transformer import encoder

__getattr__, __dir__, __all__ = lazy(__name__)
