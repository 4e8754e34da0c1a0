"""The settings of the pipeline, which are handed in as `settings.toml`: data, checked key by key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from course_lib.errors import EngineError, RecipeError
from course_lib.labs.framework.submission_files import read_toml

FILE, MAX_BYTES = "settings.toml", 16 << 10
_Part = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
_Channel = Annotated[int, Field(ge=0, lt=1000)]


class Settings(BaseModel):
    """How frames reach the detector, and which of its boxes are shown.

    Attributes:
        size: side of the detector's input in pixels; frames are resized to it.
        confidence: boxes with a lower score are not shown.
        overlap: of two boxes of one class with a larger intersection over union, the one with the lower score is not shown; 1
            keeps both.
        every: 2 detects in every second frame, and so on; the frames between show the last boxes again.
        batch: frames per call. A call waits until it has this number.
        queue: number of frames that may wait for the detector.
        drop: the frame to lose when the queue is full: the "oldest" waiting frame, or the "newest", which just arrived.
        classes: the detector's class indices for 0, 1 ... 9. A detector with more classes names these ten here.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    size: Annotated[int, Field(ge=32, le=640)] = 128
    confidence: _Part = 0.5
    overlap: _Part = 0.5
    every: Annotated[int, Field(ge=1, le=10)] = 1
    batch: Annotated[int, Field(ge=1, le=16)] = 1
    queue: Annotated[int, Field(ge=1, le=64)] = 1
    drop: Literal["oldest", "newest"] = "oldest"
    classes: Annotated[list[_Channel], Field(min_length=10, max_length=10)] = list(range(10))

    @model_validator(mode="after")
    def _fit_together(self) -> Settings:
        if self.queue < self.batch:
            raise ValueError(f"queue = {self.queue} holds less than a batch of {self.batch}, so that no call would ever begin")
        if len(set(self.classes)) < len(self.classes):
            raise ValueError("classes: the ten indices must differ")
        return self

    @classmethod
    def load(cls, path: Path) -> Settings:
        """Read ``settings.toml``.

        Raises:
            RecipeError: the file is missing, is not TOML, has an unknown key or a value that is not allowed. The message has one
                line, and its code is `FILE` or `MISSING_FILE`.
        """
        try:
            return cls(**read_toml(path, MAX_BYTES))
        except EngineError as error:
            raise RecipeError(str(error), code=error.code or FILE) from None
        except ValidationError as error:
            raise RecipeError(f"{FILE}: {_complaint(error)}", code=FILE) from None

    def dumps(self) -> str:
        """All settings as TOML text."""
        return "".join(
            f"{key} = {json.dumps(value)}\n" for key, value in self.model_dump().items()
        )  # JSON's spelling is TOML's here

    def save(self, path: str | Path) -> None:
        """Write them as TOML."""
        Path(path).write_text(self.dumps(), encoding="utf-8")


def _complaint(error: ValidationError) -> str:
    first: Any = error.errors(include_url=False)[0]
    where = " ".join(".".join(map(str, first["loc"])).split())[:60]
    if first["type"] == "extra_forbidden":
        return f"unknown key {where!r}; known keys are {', '.join(Settings.model_fields)}"
    message = first["msg"].removeprefix("Value error, ")
    return f"{where}: {message}, found {first['input']!r:.60}" if where else message
