"""A submission: the learner's id in its answer file, from which tasks draw the learner's own instance, and its other small files.

The id is in the answer file itself, under the key `KEY`, so that the answers of a friend are wrong under another id, and a mistyped id
costs no points. Without an id, which is usual for those who study alone, one is drawn once on this machine.

A lab draws with `rng`, starts its answer file with `begin`, writes it with `write`, and reads the id back with `learner_of`. All files
are read completely or rejected with a one-line error, whatever they contain.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from course_lib._util import text_files, toml_text
from course_lib._util.files import state_folder, write_atomically
from course_lib.errors import MISSING_FILE, UNREADABLE, BuildError, CourseError, EngineError, PrecisionError, RecipeError
from course_lib.recipe import Recipe, one_line

KEY = "learner"
VARIABLES = ("COURSE_LEARNER", "JUPYTERHUB_USER")  # with the id, where a machine knows it
_LONGEST = 100  # characters of an id that count
_MOST_BYTES = 1 << 20  # of an answer file


def rng(learner: str, subject: str) -> np.random.Generator:
    """A learner's generator for one subject, such as ``"lab02"``. Case and spaces around the id do not count."""
    return np.random.default_rng(list(hashlib.sha256(f"{subject}\n{plain(learner)}".encode()).digest()))


def plain(learner: str) -> str:
    """The id as it counts: equal ids have one instance."""
    return unicodedata.normalize("NFKC", learner).strip().casefold()


def begin(file: str | Path, learner: str = "") -> str:
    """The id that the work in this folder belongs to. It is written into the answer file, and answers in the file stay.

    Args:
        file: the answer file. It need not exist.
        learner: your id. Without it, the id in the file counts, then a variable of `VARIABLES`, then this machine's own id.
    """
    answers = _answers(Path(file))
    named = [learner.strip(), learner_of(answers), *(os.environ.get(name, "") for name in VARIABLES)]
    learner = next(filter(None, named), "") or _of_machine()
    write(file, learner, **{name: value for name, value in answers.items() if name != KEY})
    return learner


def write(file: str | Path, learner: str, **answers: Any) -> None:
    """Write an answer file in JSON: the id, and the answers by name."""
    write_atomically(Path(file), json.dumps({KEY: learner, **answers}, indent=2).encode() + b"\n")


def learner_of(answers: object) -> str:
    """The id in an answer file's content; "" if there is none."""
    learner = answers.get(KEY, "") if isinstance(answers, dict) else ""
    return learner.strip()[:_LONGEST] if isinstance(learner, str) else ""


def learner_in(file: Path) -> str:
    """The id in an answer file; "" if there is none or the file cannot be read."""
    return learner_of(_answers(file))


def _answers(file: Path) -> dict[str, Any]:
    try:
        answers = read_json(file, _MOST_BYTES)
    except EngineError:
        return {}
    return answers if isinstance(answers, dict) else {}


def _of_machine() -> str:
    """Drawn once, and the same for every lab on this machine. Where nothing can be kept, it is drawn again each time."""
    drawn = f"machine-{secrets.token_hex(4)}"
    try:
        file = state_folder("learner")
        if file.is_file():
            return file.read_text(encoding="utf-8").strip() or drawn
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, drawn.encode())
    except (OSError, CourseError, UnicodeError):
        pass
    return drawn


def missing(name: str) -> str:
    """The error for a missing file."""
    return f"{name} is missing: the notebook's cell that writes it has not run or has failed"


def submitted(folder: Path, name: str) -> Path:
    """A file that was handed in, or a BuildError."""
    if not (folder / name).is_file():
        raise BuildError(missing(name), code=MISSING_FILE)
    return folder / name


def submitted_recipe(folder: Path, name: str = "recipe.toml") -> Recipe:
    """A recipe that was handed in. The message of a RecipeError names the file, and not the grader's folder."""
    file = submitted(folder, name)
    try:
        return Recipe.load(file)
    except RecipeError as error:
        raise RecipeError(str(error).replace(str(file), name), code=error.code or UNREADABLE) from None


def model_and_recipe(folder: Path, precision: str = "") -> tuple[Path, Recipe]:
    """The submission's ``model.onnx`` and the recipe in its ``recipe.toml``, which must have this precision, unless it is ""."""
    model, recipe = submitted(folder, "model.onnx"), submitted_recipe(folder)
    if precision and recipe.precision != precision:
        raise PrecisionError(f'recipe.toml says precision = "{recipe.precision}", this lab asks for "{precision}"')
    return model, recipe


def read_text(file: Path, max_bytes: int) -> str:
    """The text of a file, or an EngineError in one line."""
    try:
        return text_files.decode(_content(file, max_bytes))
    except UnicodeDecodeError as error:
        raise EngineError(f"{file.name} cannot be read as text: {error}"[:200], code=UNREADABLE) from None


def read_json(file: Path, max_bytes: int) -> object:
    """The value in a JSON file; otherwise as `read_text`."""
    try:
        return json.loads(_content(file, max_bytes))
    except (ValueError, RecursionError):
        raise EngineError(f"{file.name} is not JSON: write it with json.dump", code=UNREADABLE) from None


def read_toml(file: Path, max_bytes: int) -> dict[str, Any]:
    """The table in a TOML file; otherwise as `read_text`."""
    try:
        return toml_text.loads(text_files.decode(_content(file, max_bytes)))
    except (ValueError, RecursionError) as error:
        raise EngineError(f"{file.name} is not TOML: {' '.join(str(error).split())[:120]}", code=UNREADABLE) from None


def checked(kind: Any, values: object, place: str, code: str = "") -> Any:
    """Values in the form that pydantic knows as `kind`, or an EngineError in one line that begins with their place."""
    try:
        return TypeAdapter(kind).validate_json(json.dumps(values, default=str))  # its words are those of a file, not of Python
    except ValidationError as error:
        raise EngineError(f"{place}: {one_line(error, kind)}", code=code) from None
    except (ValueError, RecursionError):
        raise EngineError(f"{place}: nested too deep, or a number of thousands of digits", code=code or UNREADABLE) from None


def _content(file: Path, max_bytes: int) -> bytes:
    try:
        with open(file, "rb") as opened:
            content = opened.read(max_bytes + 1)
    except FileNotFoundError:
        raise EngineError(missing(file.name), code=MISSING_FILE) from None
    except OSError as error:
        raise EngineError(f"{file.name} cannot be read as text: {error.strerror}", code=UNREADABLE) from None
    if len(content) > max_bytes:
        raise EngineError(f"{file.name} is longer than {max_bytes:,} bytes", code=UNREADABLE)
    return content
