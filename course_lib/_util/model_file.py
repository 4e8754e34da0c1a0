"""An ONNX model, from a file or from memory."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from course_lib.errors import BuildError

if TYPE_CHECKING:
    import onnx


def open_model(model: onnx.ModelProto | str | os.PathLike[str]) -> onnx.ModelProto:
    """The model in a file, or the given model.

    Raises:
        BuildError: the file does not exist or is not an ONNX model, or the argument is neither a file nor a model.
    """
    import onnx

    if isinstance(model, onnx.ModelProto):
        return model
    if not isinstance(model, (str, os.PathLike)):
        raise BuildError(f"expected an ONNX model or the path of one, got {type(model).__name__}")
    try:
        return onnx.load(model)
    except OSError as error:
        raise BuildError(f"{os.fspath(model)} cannot be read: {error.strerror or error}") from None
    except Exception as error:  # protobuf's own class, which differs between its versions
        raise BuildError(f"{os.fspath(model)} is not an ONNX model, or only a part of one ({type(error).__name__})") from None
