"""Building a model that a command names: its errors name the file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from course_lib.errors import BuildError

if TYPE_CHECKING:
    from course_lib.engines import Plan
    from course_lib.recipe import Recipe


def build(model: Path, recipe: Recipe, **options: Any) -> Plan:
    """Build as `engines.build` does; an error names the file.

    Raises:
        CourseError: see `engines.build`.
    """
    from course_lib import engines

    if not model.is_file():  # before a bar is shown
        raise BuildError(f"{model}: no such file; expected an ONNX file: check the path")
    try:
        return engines.build(model, recipe, **options)
    except BuildError as error:
        if str(model) in str(error):
            raise
        expected = "; expected an ONNX file, for example from torch.onnx.export" if "not an ONNX model" in str(error) else ""
        raise type(error)(f"{model}: {error}{expected}", code=error.code) from None
