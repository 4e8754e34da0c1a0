"""An ONNX model, from a file or from memory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from course_lib.errors import BuildError

if TYPE_CHECKING:
    import onnx


def open_model(model: onnx.ModelProto | str | os.PathLike[str]) -> onnx.ModelProto:
    """The model in a file, or the given model.

    Raises:
        BuildError: the file does not exist or is not an ONNX model, a file with its weights is missing, or the argument is neither a
            file nor a model.
    """
    import onnx

    if isinstance(model, onnx.ModelProto):
        return model
    if not isinstance(model, (str, os.PathLike)):
        raise BuildError(f"expected an ONNX model or the path of one, got {type(model).__name__}")
    path = Path(model)
    try:
        loaded = onnx.load(path, load_external_data=False)
        check_weights(loaded, path.parent)
        onnx.load_external_data_for_model(loaded, str(path.parent))
        return loaded
    except BuildError as error:
        raise BuildError(f"{path}: {error}") from None
    except OSError as error:
        raise BuildError(f"{path} cannot be read: {error.strerror or error}") from None
    except Exception as error:  # protobuf's own class, which differs between its versions
        raise BuildError(f"{path} is not an ONNX model, or only a part of one ({type(error).__name__})") from None


def check_weights(model: onnx.ModelProto, folder: Path) -> None:
    """Compare what a model says about weights in other files with the files in its folder.

    Raises:
        BuildError: a file is missing, or is shorter than the weights that it should hold.
    """
    for tensor in model.graph.initializer:
        if tensor.data_location != tensor.EXTERNAL:
            continue
        stored = {entry.key: entry.value for entry in tensor.external_data}
        location = os.fsdecode(stored.get("location", ""))  # protobuf returns bytes for a text that is not UTF-8
        try:
            size = (folder / location).stat().st_size if (folder / location).is_file() else -1
            end = int(stored.get("offset") or 0) + int(stored.get("length") or 0)
        except (OSError, ValueError):  # a name with a zero byte, an offset that is not a number
            size = end = -1
        if size < 0:
            raise BuildError(
                f"the weights of {tensor.name!r} are in the file {location!r}, which is missing next to the model: "
                "copy it there, or save the model with its weights inside"
            )
        if size < end:
            raise BuildError(
                f"the weights of {tensor.name!r} end at byte {end} of the file {location!r}, which has {size} bytes: copy it again"
            )
