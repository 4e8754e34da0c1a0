"""The option ``--shape NAME=SHAPE`` of several commands."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

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
