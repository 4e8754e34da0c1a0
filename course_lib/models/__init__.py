"""The networks and the data that the course works on, and their way to ONNX.

Importing this package is light. The networks need torch, and each is imported the first time its name is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from course_lib.models.digits import Digits, digits, fresh_digits

if TYPE_CHECKING:
    from course_lib.models.export import Signature, export_onnx
    from course_lib.models.residual_cnn import classifier
    from course_lib.models.resnet import resnet50
    from course_lib.models.transformer import encoder

__all__ = ["Digits", "Signature", "classifier", "digits", "encoder", "export_onnx", "fresh_digits", "resnet50"]

# Where each name comes from that needs torch. A module must not bear the name of a function here: once imported, Python
# would put the module in the function's place.
_LAZY = {
    "Signature": "export",
    "classifier": "residual_cnn",
    "encoder": "transformer",
    "export_onnx": "export",
    "resnet50": "resnet",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
