"""ONNX files as the bytes that a plan carries, for the backends whose plan is the model itself."""

from __future__ import annotations

from pathlib import Path

from course_lib.errors import BuildError


def self_contained(model: Path) -> bytes:
    """The model with its weights inside. A session made from bytes would look for external weights in the working directory.

    Raises:
        BuildError: the weights are in files next to the model that are missing, or that cannot be read without the onnx package.
    """
    data = model.read_bytes()
    if b"location" not in data:  # the key under which ONNX names a file with weights
        return data
    try:
        import onnx

        return bytes(onnx.load(model).SerializeToString())
    except ImportError:
        raise BuildError(
            "the model may keep weights in files next to it, which this environment cannot read: install onnx"
        ) from None
    except Exception as error:  # protobuf's own classes, and a TypeError of onnx's for a location that is not text
        raise BuildError(
            f"the model's weights are not in it and cannot be read: {' '.join(str(error).split())[:200]}"
        ) from None
