"""Small text files of a submission, read completely or rejected with a one-line error, whatever they contain."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from course_lib._util import text_files, toml_text
from course_lib.errors import MISSING_FILE, BuildError, EngineError, PrecisionError, RecipeError
from course_lib.recipe import Recipe


def missing(name: str) -> str:
    """The error for a missing file."""
    return f"{name} is missing: the notebook's cell that writes it has not run or has failed"


def submitted(folder: Path, name: str) -> Path:
    """A file that was handed in.

    Raises:
        BuildError: it is not there.
    """
    if not (folder / name).is_file():
        raise BuildError(missing(name), code=MISSING_FILE)
    return folder / name


def submitted_recipe(folder: Path, name: str = "recipe.toml") -> Recipe:
    """A recipe that was handed in.

    Raises:
        BuildError: it is not there.
        RecipeError: it cannot be read. The message names the file, and not the grader's folder.
    """
    file = submitted(folder, name)
    try:
        return Recipe.load(file)
    except RecipeError as error:
        raise RecipeError(str(error).replace(str(file), name), code=error.code) from None


def model_and_recipe(folder: Path, precision: str = "") -> tuple[Path, Recipe]:
    """The submission's ``model.onnx`` and the recipe in its ``recipe.toml``.

    Args:
        precision: the required precision, "" if each is allowed.

    Raises:
        BuildError: one of the files is missing.
        RecipeError: the recipe cannot be read.
        PrecisionError: the recipe has another precision.
    """
    model, recipe = submitted(folder, "model.onnx"), submitted_recipe(folder)
    if precision and recipe.precision != precision:
        raise PrecisionError(f'recipe.toml says precision = "{recipe.precision}", this lab asks for "{precision}"')
    return model, recipe


def read_text(file: Path, max_bytes: int, advice: str = "") -> str:
    """The text of a file.

    Args:
        max_bytes: largest size.
        advice: what to do about a longer file.

    Raises:
        EngineError: the file is missing, cannot be read, is too long or is not text. The message has one line.
    """
    try:
        return text_files.decode(_content(file, max_bytes, advice))
    except UnicodeDecodeError as error:
        raise EngineError(f"{file.name} cannot be read as text: {error}"[:200]) from None


def read_json(file: Path, max_bytes: int, advice: str = "") -> object:
    """The value in a JSON file. The arguments are those of `read_text`.

    Raises:
        EngineError: the file is missing, cannot be read, is too long or is not JSON. The message has one line.
    """
    try:
        return json.loads(_content(file, max_bytes, advice))
    except (ValueError, RecursionError):
        raise EngineError(f"{file.name} is not JSON: write it with json.dump") from None


def read_toml(file: Path, max_bytes: int, advice: str = "") -> dict[str, Any]:
    """The table in a TOML file; arguments as for `read_text`.

    Raises:
        EngineError: it is missing, cannot be read, is too long or is not TOML; one line.
    """
    try:
        return toml_text.loads(text_files.decode(_content(file, max_bytes, advice)))
    except (ValueError, RecursionError) as error:
        raise EngineError(f"{file.name} is not TOML: {' '.join(str(error).split())[:120]}") from None


def _content(file: Path, max_bytes: int, advice: str) -> bytes:
    try:
        with open(file, "rb") as opened:
            content = opened.read(max_bytes + 1)
    except FileNotFoundError:
        raise EngineError(missing(file.name), code=MISSING_FILE) from None
    except OSError as error:
        raise EngineError(f"{file.name} cannot be read as text: {error.strerror}") from None
    if len(content) > max_bytes:
        raise EngineError(f"{file.name} is longer than {max_bytes:,} bytes" + (f": {advice}" if advice else ""))
    return content
