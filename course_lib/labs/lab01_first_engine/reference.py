"""The reference of lab 01, made by code: the network in FP32, as exported, and one profile for the service."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from course_lib.recipe import Profile, Recipe


def write(folder: Path, opset: int | None = None) -> None:
    """model.onnx and recipe.toml, for a builder that reads up to `opset`."""
    (folder / "model.onnx").write_bytes(_exported(opset))
    recipe((1, 32)).save(folder / "recipe.toml")  # the batches of the service


def recipe(batches: tuple[int, int]) -> Recipe:
    """One profile over the service's range, tuned for the single image that it sends most often."""
    low, high = batches
    return Recipe(profiles=(Profile(image={"min": (low, 1, 32, 32), "opt": (1, 1, 32, 32), "max": (high, 1, 32, 32)}),))


@cache
def _exported(opset: int | None) -> bytes:
    from course_lib.models import classifier, export_onnx

    return export_onnx(classifier("wide"), opset=opset).SerializeToString()
