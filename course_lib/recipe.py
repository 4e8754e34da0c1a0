"""The options for a build: a `Recipe`, read from and written to TOML, and validated before the build."""

from __future__ import annotations

import difflib
import json
import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, RootModel, ValidationError, field_validator, model_validator

from course_lib._util import text_files, toml_text
from course_lib.errors import PROFILE, RecipeError

Precision = Literal["fp32", "fp16", "bf16", "int8", "fp8"]
Dimension = Annotated[int, Field(ge=0, le=(1 << 31) - 1, strict=True)]  # TensorRT computes with 32 bits
Shape = tuple[Dimension, ...]

# Builder flags that choose number types. They belong to `precision`, where the engine's layers prove them.
_PRECISION_FLAGS = {"fp16", "bf16", "int8", "fp8", "fp4", "int4"}


class _Value(BaseModel):
    """A frozen model that rejects unknown keys and raises `RecipeError` with one line instead of pydantic's report."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def __init__(self, /, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise _rejection(error, type(self)) from None


class ShapeRange(_Value):
    """The shapes that one input may have. Each dimension is within ``[min, max]``, and kernels are chosen for ``opt``."""

    min: Shape
    opt: Shape
    max: Shape

    @model_validator(mode="after")
    def _ordered(self) -> ShapeRange:
        if not len(self.min) == len(self.opt) == len(self.max):
            raise ValueError(f"min, opt and max need the same rank, found {len(self.min)}, {len(self.opt)} and {len(self.max)}")
        for axis, (low, best, high) in enumerate(zip(self.min, self.opt, self.max, strict=True)):
            if not low <= best <= high:
                raise ValueError(f"dimension {axis} needs min <= opt <= max, found {low}, {best}, {high}")
        return self

    def contains(self, shape: tuple[int, ...]) -> bool:
        """Whether an engine with this range accepts ``shape``."""
        return len(shape) == len(self.min) and all(
            low <= n <= high for low, n, high in zip(self.min, shape, self.max, strict=True)
        )


class Profile(RootModel[dict[str, ShapeRange]]):
    """An optimization profile: one `ShapeRange` per input with dynamic dimensions.

    >>> Profile(image=dict(min=(1, 1, 32, 32), opt=(8, 1, 32, 32), max=(32, 1, 32, 32)))["image"].opt
    (8, 1, 32, 32)
    """

    model_config = ConfigDict(frozen=True)

    def __init__(self, root: dict[str, Any] | None = None, /, **inputs: Any) -> None:
        try:
            super().__init__(root if root is not None else inputs)
        except ValidationError as error:
            raise _rejection(error, type(self)) from None

    def __getitem__(self, name: str) -> ShapeRange:
        return self.root[name]


class Recipe(_Value):
    """How to build an engine. Every key is optional; the defaults build an FP32 engine for a model with fixed shapes.

    Attributes:
        precision: the precision of the graph, checked on the layers of the finished engine. On TensorRT 8.6, whose
            networks are weakly typed, it also permits the builder to choose that precision.
        workspace_mib: limit of a kernel's scratch memory, in MiB.
        optimization_level: 0 builds fastest, 5 searches longest for fast kernels.
        flags: names of `BuilderFlag` members in lower case; exactly these are set.
        targets: compute capabilities such as ``"sm89"``, for builders that compile ahead of time.
        hardware_compatibility: "ampere_plus" builds a plan that runs on compute capability 8.0 and all later ones, at some cost in
            speed; "same_compute_capability" one for other GPUs of this capability. That it runs under later versions of TensorRT
            is a flag, ``version_compatible``.
        profiles: optimization profiles; ``[[profile]]`` tables in TOML.
    """

    model_config = ConfigDict(populate_by_name=True)

    precision: Precision = "fp32"
    workspace_mib: Annotated[int, Field(ge=0, le=1 << 20, strict=True)] = 1024
    optimization_level: Annotated[int, Field(ge=0, le=5, strict=True)] = 3
    flags: tuple[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")], ...] = ("tf32",)
    targets: tuple[Annotated[str, Field(pattern=r"^sm\d{2,3}$")], ...] = ()
    hardware_compatibility: Literal["none", "ampere_plus", "same_compute_capability"] = "none"
    profiles: tuple[Profile, ...] = Field(default=(), alias="profile")

    @field_validator("flags")
    @classmethod
    def _no_precision_flags(cls, flags: tuple[str, ...]) -> tuple[str, ...]:
        if clash := _PRECISION_FLAGS.intersection(flags):
            raise ValueError(f'{sorted(clash)[0]!r} is not a flag here: write precision = "{sorted(clash)[0]}"')
        return flags

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Recipe:
        """Read ``recipe.toml``.

        Raises:
            RecipeError: the file is missing, is not TOML, or holds an unknown key, a wrong type or a contradiction.
        """
        path = Path(path)
        try:
            return cls.loads(text_files.read_text(path))
        except FileNotFoundError:
            raise RecipeError(f"{path}: no such recipe") from None
        except (OSError, UnicodeDecodeError) as error:
            raise RecipeError(f"{path}: cannot be read as text: {error}") from None
        except RecipeError as error:
            raise RecipeError(f"{path}: {error}", code=error.code) from None

    @classmethod
    def loads(cls, text: str) -> Recipe:
        """Read a recipe from TOML text; see `load`."""
        try:
            return cls(**toml_text.loads(text))
        except RecipeError:
            raise
        except (ValueError, RecursionError) as error:  # Python rejects thousands of digits with a ValueError of its own
            raise RecipeError(f"not valid TOML: {str(error)[:300]}") from None

    def dumps(self) -> str:
        """The recipe as TOML text, without the keys that have their default value."""
        values = self.model_dump(mode="json", exclude_defaults=True)
        profiles = values.pop("profiles", [])
        # a JSON number, string or list of these is also a TOML value
        lines = [f"{key} = {json.dumps(value)}" for key, value in values.items()]
        for profile in profiles:
            lines += ["", "[[profile]]"]
            for name, shapes in profile.items():
                inline = ", ".join(f"{bound} = {shape}" for bound, shape in shapes.items())
                lines.append(f"{_toml_key(name)} = {{ {inline} }}")
        return "\n".join(lines).lstrip("\n") + "\n"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the recipe as TOML."""
        Path(path).write_text(self.dumps(), encoding="utf-8")

    def wire(self) -> dict[str, object]:
        """Plain JSON values, for a worker in an environment without pydantic."""
        return self.model_dump(mode="json")


def _toml_key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False).replace("\x7f", "\\u007f")


def _rejection(error: ValidationError, model: type[BaseModel]) -> RecipeError:
    about_profiles = error.errors(include_url=False)[0]["loc"][:1] in (("profile",), ("profiles",))
    return RecipeError(one_line(error, model), code=PROFILE if about_profiles else "")


_LONGEST_KEY = 60  # characters of a key that a message quotes


def one_line(error: ValidationError, model: Any) -> str:
    """Pydantic's first error as ``where: what was expected, what was found``; an unknown key is the cause of a missing one."""
    errors = error.errors(include_url=False)
    first = next((one for one in errors if one["type"] == "extra_forbidden"), errors[0])
    parts = [str(part)[:_LONGEST_KEY] for part in first["loc"] if part != "[key]"]  # pydantic's mark for a key of a dictionary
    where = " ".join(".".join(parts).split())  # a quoted key may hold line ends
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        if len(parts) > 1 or not hasattr(model, "model_fields"):  # the keys of a nested model are not those of `model`
            return f"unknown key {where!r}: remove it"
        known = sorted(field.alias or name for name, field in model.model_fields.items())
        near = difflib.get_close_matches(where, known, n=1)
        meant = f": did you mean {near[0]}?" if near else ";"
        return f"unknown key {where!r}{meant} known keys are {', '.join(known)}"
    found = "" if first["type"] in {"missing", "value_error"} else f", found {first['input']!r:.60}"
    return f"{where}: {message}{found}" if where else f"{message}{found}"
