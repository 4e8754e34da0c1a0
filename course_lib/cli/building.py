"""Building a model that a command names: its errors name the file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from course_lib.errors import BuildError

if TYPE_CHECKING:
    from course_lib.engines import Plan
    from course_lib.recipe import Recipe


def one_of_each(model: Path) -> str:
    """The options that name a shape for each input with a dynamic dimension, which is 1 there; the file must be an ONNX model."""
    from course_lib.engines.onnx_file import described, input_shapes

    graph = described(model)
    dynamic = {name: shape for name, shape in input_shapes(graph).items() if -1 in shape} if graph else {}
    return " ".join(f"--shape {name}={'x'.join(str(max(size, 1)) for size in shape)}" for name, shape in dynamic.items())


def build(model: Path, recipe: Recipe, *, shapes_from: str = "", **options: Any) -> Plan:
    """Build as `engines.build` does; an error names the file, and `shapes_from`, the option that gave the profile's shapes.

    Raises:
        CourseError: see `engines.build`.
    """
    from course_lib import engines
    from course_lib.engines.backends.tensorrt.config import check_profile
    from course_lib.engines.onnx_file import described, input_shapes

    if not model.is_file():  # before a bar is shown
        raise BuildError(f"{model}: no such file; expected an ONNX file: check the path")
    try:
        if shapes_from and (graph := described(model)):
            check_profile(shapes_from, recipe.profiles[0].model_dump(), input_shapes(graph))
        return engines.build(model, recipe, **options)
    except BuildError as error:
        if str(model) in str(error):
            raise
        expected = "; expected an ONNX file, for example from torch.onnx.export" if "not an ONNX model" in str(error) else ""
        raise type(error)(f"{model}: {error}{expected}", code=error.code) from None
