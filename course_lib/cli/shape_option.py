"""The option ``--shape NAME=SHAPE`` of several commands."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from course_lib.engines.plan import spell
from course_lib.errors import CourseError

BOUNDS = ("min", "opt", "max")


def shapes_of(texts: Sequence[str], *, ranges: bool = True) -> dict[str, Any]:
    """Shapes by name from texts ``NAME=4x1x32x32``, or with `ranges` also ``NAME=MIN:OPT:MAX``, whose three shapes become a dictionary.

    Raises:
        CourseError: a text is neither.
    """
    return dict(_shape(text, ranges) for text in texts)


def check_names(given: Iterable[str], known: Sequence[str]) -> None:
    """Raises CourseError, which lists the names of the inputs, if a given one is not among them."""
    if unknown := [name for name in given if name not in known]:
        raise CourseError(f"--shape names {unknown[0]!r}, but the inputs are {', '.join(known)}: use one of these names")


def check_shapes(given: Mapping[str, Any], model: Path) -> None:
    """Raises CourseError if a given shape does not fit the ONNX file's input of that name."""
    from course_lib.engines.onnx_file import described

    loaded = described(model)
    if loaded is None:
        return
    constants = {tensor.name for tensor in loaded.graph.initializer}
    inputs = {
        value.name: [size.dim_value if size.HasField("dim_value") else -1 for size in value.type.tensor_type.shape.dim]
        for value in loaded.graph.input
        if value.name not in constants
    }
    check_names(given, list(inputs))
    for name, one in given.items():
        for shape in one.values() if isinstance(one, Mapping) else [one]:
            fits = len(shape) == len(inputs[name]) and all(n in (-1, size) for n, size in zip(inputs[name], shape, strict=True))
            if not fits:
                raise CourseError(f"--shape gives {name!r} {spell(shape)}, expected {spell(inputs[name])}: N may have any size")


def _shape(text: str, ranges: bool) -> tuple[str, Any]:
    name, _, shapes = text.rpartition("=")
    several = shapes.split(":") if name and re.fullmatch(r"[1-9]\d*([x:][1-9]\d*)*", shapes) else []
    sizes = [tuple(map(int, shape.split("x"))) for shape in several]
    if len(sizes) == 1:
        return name, sizes[0]
    if len(sizes) == len(BOUNDS) and ranges:
        return name, dict(zip(BOUNDS, sizes, strict=True))
    expected = "NAME=4x1x32x32" + " or NAME=1x1x32x32:4x1x32x32:8x1x32x32" * ranges
    raise CourseError(f"--shape {text}: expected {expected}")
