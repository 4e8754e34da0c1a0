"""ONNX files: what every build checks first, and the bytes that a plan carries if the plan is the model itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from course_lib._util.model_file import check_weights
from course_lib._util.plain_text import reason
from course_lib.errors import BuildError

if TYPE_CHECKING:
    import onnx


REPAIR = "repair this part of the model"  # what to do about a rejection without a more specific remedy


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
    except ImportError:
        raise BuildError(
            "the model may keep weights in files next to it, which this environment cannot read: install onnx"
        ) from None
    try:
        return bytes(onnx.load(model).SerializeToString())
    except Exception as error:  # protobuf's own classes, and a TypeError of onnx's for a location that is not text
        raise BuildError(f"the model's weights are not in it and cannot be read: {reason(error)}") from None


def described(model: Path) -> onnx.ModelProto | None:
    """The model without the weights that are in other files; None without the onnx package.

    Raises:
        BuildError: the file is not an ONNX model, its weights are missing, an input or output is not a tensor of real numbers, or an
            input has no shape.
    """
    try:
        import onnx
    except ImportError:
        return None
    try:
        loaded = onnx.load(model, load_external_data=False)
    except Exception as error:  # protobuf's own class, which differs between its versions
        raise BuildError(f"the file is not an ONNX model, or only a part of one ({type(error).__name__})") from None
    if not loaded.graph.node and not loaded.graph.output:
        raise BuildError("the file is not an ONNX model: it has no graph")
    check_weights(loaded, model.parent)
    for side, values in (("input", loaded.graph.input), ("output", loaded.graph.output)):
        for value in values:
            if kind := _not_numbers(value.type):
                raise BuildError(
                    f"{side} {value.name!r} is {kind}, which engines do not support: they take and return tensors of real numbers. "
                    "Remove this part from the graph and compute it outside"
                )
    given = {tensor.name for tensor in loaded.graph.initializer}
    for value in loaded.graph.input:
        if value.name not in given and not value.type.tensor_type.HasField("shape"):
            raise BuildError(f"input {value.name!r} has no shape in the file: write one, with names for dimensions that vary")
    return loaded


def input_shapes(model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    """The shapes of the inputs by name, with -1 for dimensions that vary."""
    weights = {tensor.name for tensor in model.graph.initializer}
    shapes = {value.name: value.type.tensor_type.shape.dim for value in model.graph.input if value.name not in weights}
    return {name: tuple(d.dim_value if d.HasField("dim_value") else -1 for d in shape) for name, shape in shapes.items()}


def _not_numbers(kind: Any) -> str:
    """What a value of the graph is, if it is not a tensor of real numbers; else ""."""
    import onnx

    what = kind.WhichOneof("value") or "tensor_type"
    if what != "tensor_type":
        return {"sequence_type": "a sequence", "optional_type": "an optional value"}.get(
            what, f"a {what.removesuffix('_type')}"
        )
    stored = kind.tensor_type.elem_type
    words = {onnx.TensorProto.STRING: "a string tensor"}
    words |= dict.fromkeys((onnx.TensorProto.COMPLEX64, onnx.TensorProto.COMPLEX128), "a complex tensor")
    return words.get(stored, "")
