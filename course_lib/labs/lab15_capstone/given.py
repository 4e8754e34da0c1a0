"""What lab 15 starts from: settings, the given detector, the first version, frames for calibration, and how boxes are read."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from course_lib.errors import EngineError, RecipeError
from course_lib.labs.framework.submission import read_toml
from course_lib.models.digit_video import prepared, video
from course_lib.precision import lowering_helps
from course_lib.recipe import Precision, Profile, Recipe

if TYPE_CHECKING:
    from onnx import ModelProto

FILE, MAX_BYTES = "settings.toml", 16 << 10
_Part = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
_Channel = Annotated[int, Field(ge=0, lt=1000)]
OPSET = 17  # the newest that every builder of the course reads, and exported within a second
_SEED, _FRAMES = 9, 128
CANDIDATES = 200  # boxes per frame, the best ones, that are compared with one another: an answer of thousands costs no more
SHOWN = 50  # boxes per frame at most


class Settings(BaseModel):
    """How frames reach the detector, and which of its boxes are shown.

    Attributes:
        size: side of the detector's input in pixels; frames are resized to it.
        confidence: boxes with a lower score are not shown; 0 shows all.
        overlap: of two boxes of one class with a larger intersection over union, the one with the lower score is not shown; 1
            keeps both.
        every: 2 detects in every second frame, and so on; the frames between show the last boxes again.
        batch: frames per call. A call waits until it has this number.
        queue: number of frames that may wait for the detector.
        drop: the frame to lose when the queue is full: the "oldest" waiting frame, or the "newest", which just arrived.
        classes: the detector's class indices for 0, 1 ... 9. A detector with more classes names these ten here.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    size: Annotated[int, Field(ge=32, le=640)] = 160
    confidence: _Part = 0.0
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


# The first version enlarges frames to 160 pixels. A call then costs 1.5 times as much on a CPU, and more boxes are false than at 96 to
# 128 pixels, where the detector was trained. Only its time counts.
FIRST = Settings(size=160, confidence=0.5)
WHOLE_CURVE = Settings(
    size=128, confidence=0.02, queue=4
)  # of the given detector: nearly all digits, and one box in four is false


def recipe(size: int, precision: Precision | None = None) -> Recipe:
    """A recipe for one frame per call, by default in INT8 if this machine multiplies 8-bit integers faster, otherwise in FP32."""
    shape = (1, 1, size, size)
    profile = Profile(frames={"min": shape, "opt": shape, "max": shape})
    return Recipe(precision=precision or ("int8" if lowering_helps() else "fp32"), profiles=(profile,))


def exported(size: int) -> ModelProto:
    """The given detector for frames with this side in pixels, as exported."""
    from course_lib.models import detector, export_onnx

    return export_onnx(detector(size), opset=OPSET)


def calibration_frames(side: int) -> np.ndarray:
    """Frames of a video that the examiner does not use, prepared for a detector: float32 ``(128, 1, side, side)``, 0 to 1."""
    frames = itertools.islice(video(_SEED, split="train", scene_frames=1), _FRAMES)
    return prepared(np.stack([frame.image for frame in frames]), side)


# ---- the pipeline's last step, which is the same for all learners


@dataclass(frozen=True)
class Detections:
    """The detections in one frame, best first.

    Attributes:
        boxes: float64 ``(n, 4)``: center x, center y, width and height in pixels of the frame.
        scores: float64 ``(n,)``, in [0, 1].
        classes: int64 ``(n,)``, 0-9.
    """

    boxes: np.ndarray
    scores: np.ndarray
    classes: np.ndarray

    def __len__(self) -> int:
        return len(self.scores)


NOTHING = Detections(np.zeros((0, 4)), np.zeros(0), np.zeros(0, np.int64))


def detections(answer: np.ndarray, settings: Settings, *, scale: float) -> list[Detections]:
    """The displayed detections for each frame of a batch.

    Args:
        answer: ``(N, 4 + classes, cells)``: center x, center y, width, height in pixels of the input, then a score for each class.
        settings: confidence, overlap and classes are used.
        scale: pixels of the frame for one of the input.

    Raises:
        EngineError: the answer has another layout.
    """
    rows = 5 + max(settings.classes)
    if answer.ndim != 3 or answer.shape[1] < rows or not answer.shape[2] or answer.dtype.kind != "f":
        raise EngineError(
            f"the detector answers with {answer.dtype} of shape {answer.shape}, expected floats (N, 4 + classes, cells) "
            f"with at least {rows} rows"
        )
    return [_shown(frame, settings, scale) for frame in answer]


def _shown(answer: np.ndarray, settings: Settings, scale: float) -> Detections:
    """One frame. A cell gives one box, of its best class. Invalid boxes, such as those with NaN, are not shown."""
    scores = answer[4:][settings.classes]
    with np.errstate(invalid="ignore"):
        candidates = np.flatnonzero(scores.max(axis=0) >= settings.confidence)
    scores = scores[:, candidates].astype(np.float64)
    boxes = scale * answer[:4, candidates].T.astype(np.float64)
    sound = np.isfinite(boxes).all(1) & (boxes[:, 2:] > 0).all(1) & np.isfinite(scores).all(0)
    boxes, scores = boxes[sound], scores[:, sound]
    best = scores.max(axis=0, initial=0)
    order = np.argsort(-best, kind="stable")[:CANDIDATES]
    found = Detections(boxes[order], best[order], scores[:, order].argmax(axis=0))
    kept = _not_suppressed(found, settings.overlap)[:SHOWN]
    return Detections(found.boxes[kept], found.scores[kept], found.classes[kept])


def _not_suppressed(found: Detections, overlap: float) -> list[int]:
    """Indices that greedy non-maximum suppression keeps, class by class, best first."""
    rivals = (iou(found.boxes, found.boxes) > overlap) & (found.classes[:, None] == found.classes)
    free = np.ones(len(found), dtype=bool)
    kept = []
    for index in range(len(found)):
        if free[index]:
            kept.append(index)
            free &= ~rivals[index]
    return kept


def iou(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Intersection over union of every pair of boxes, ``(n, 4)`` and ``(m, 4)`` to ``(n, m)``."""
    ours, theirs = ours[:, None], theirs[None]
    low = np.maximum(ours[..., :2] - ours[..., 2:] / 2, theirs[..., :2] - theirs[..., 2:] / 2)
    high = np.minimum(ours[..., :2] + ours[..., 2:] / 2, theirs[..., :2] + theirs[..., 2:] / 2)
    inside = np.clip(high - low, 0, None).prod(axis=2)
    return inside / (ours[..., 2:].prod(axis=2) + theirs[..., 2:].prod(axis=2) - inside)
