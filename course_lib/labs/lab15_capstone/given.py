"""What lab 15 starts from: settings, the given detector, the first version, frames for calibration, boxes, the queue, a trial."""

from __future__ import annotations

import itertools
import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from course_lib.benchmark.queueing import Answers
from course_lib.benchmark.statistics import timed_ms
from course_lib.errors import MISSING_FILE, EngineError, RecipeError
from course_lib.labs.framework.submission import checked, read_toml
from course_lib.models.digit_boxes import NOTHING, Detections, Matched, Quality, iou, matched
from course_lib.models.digit_video import SIDE, Frame, prepared, video
from course_lib.precision import lowering_helps
from course_lib.recipe import Precision, Profile, Recipe

if TYPE_CHECKING:
    from onnx import ModelProto

    from course_lib.labs.framework.examination import TimedWorker

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
            settings: Settings = checked(cls, read_toml(path, MAX_BYTES), FILE)
        except EngineError as error:
            raise RecipeError(str(error), code=MISSING_FILE if error.code == MISSING_FILE else FILE) from None
        return settings

    def dumps(self) -> str:
        """All settings as TOML text."""
        # JSON's spelling is TOML's here.
        return "".join(f"{key} = {json.dumps(value)}\n" for key, value in self.model_dump().items())

    def save(self, path: str | Path) -> None:
        """Write them as TOML."""
        Path(path).write_text(self.dumps(), encoding="utf-8")


# The first version enlarges frames to 160 pixels. A call then costs 1.5 times as much on a CPU, and more boxes are false than at 96 to
# 128 pixels, where the detector was trained. Only its time counts.
FIRST = Settings(size=160, confidence=0.5)
# Of the given detector: nearly all digits, and one box in four is false.
WHOLE_CURVE = Settings(size=128, confidence=0.02, queue=4)


def recipe(size: int, precision: Precision | None = None) -> Recipe:
    """A recipe for one frame per call, by default in INT8 if this machine multiplies 8-bit integers faster, otherwise in FP32."""
    shape = (1, 1, size, size)
    profile = Profile(frames={"min": shape, "opt": shape, "max": shape})
    return Recipe(precision=precision or ("int8" if lowering_helps() else "fp32"), profiles=(profile,))


def exported(size: int) -> ModelProto:
    """The given detector for frames with this side in pixels, as exported."""
    from course_lib.models import detector, export_onnx

    return export_onnx(detector(size), opset=OPSET)


def write(folder: Path, settings: Settings) -> None:
    """The three files of a submission: the given detector as exported, in FP32, with these settings."""
    (folder / "model.onnx").write_bytes(exported(settings.size).SerializeToString())
    recipe(settings.size, "fp32").save(folder / "recipe.toml")
    settings.save(folder / FILE)


def calibration_frames(side: int) -> np.ndarray:
    """Frames of a video that the examiner does not use, prepared for a detector: float32 ``(128, 1, side, side)``, 0 to 1."""
    frames = itertools.islice(video(_SEED, split="train", scene_frames=1), _FRAMES)
    return prepared(np.stack([frame.image for frame in frames]), side)


# ---- the pipeline's steps around the detector, which are the same for all learners, and the queue before it


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


@dataclass(frozen=True)
class Replay(Answers):
    """What happened to the frames that were sent to the detector.

    Attributes:
        period_ms: time from one frame of the source to the next.
        every: one of this many frames was sent.
    """

    period_ms: float
    every: int

    def shown(self, found: Sequence[Detections], frames: int) -> list[Detections]:
        """The boxes on each of the source's frames: a skipped frame shows those of the one before, a lost frame none."""
        lost = np.isnan(self.latency_ms)
        return [NOTHING if lost[index // self.every] else found[index // self.every] for index in range(frames)]


def replay(call_ms: np.ndarray, sent: int, settings: Settings, period_ms: float) -> Replay:
    """Send `sent` frames through a queue to a detector whose k-th call takes ``call_ms[k]``.

    A call begins when the detector is free and a full batch waits. The last call takes the remaining frames.

    Args:
        call_ms: durations, ``(calls,)``; they repeat if there are more calls.
        sent: number of frames.
        settings: batch, every, queue and drop are used.
        period_ms: time from one frame of the source to the next.
    """
    arrivals = np.arange(sent) * period_ms * settings.every
    done = np.full(sent, np.nan)
    lengths = np.zeros(sent, dtype=int)
    queue: deque[int] = deque()
    durations = iter(np.resize(call_ms, sent))
    free_at = 0.0

    def serve(until: float, now: float, at_least: int) -> float:
        """Start the calls that begin no later than `until`; `now` is the last arrival. Return when the detector is free again."""
        free = free_at
        while len(queue) >= at_least and free <= until:
            free = max(free, now) + next(durations)
            for _ in range(min(settings.batch, len(queue))):
                done[queue.popleft()] = free
        return free

    for index, now in enumerate(arrivals):
        free_at = serve(now, arrivals[max(index - 1, 0)], settings.batch)
        queue.append(index)
        free_at = serve(now, now, settings.batch)
        if len(queue) > settings.queue:
            queue.popleft() if settings.drop == "oldest" else queue.pop()
        lengths[index] = len(queue)
    free_at = serve(np.inf, arrivals[-1], 1)
    return Replay(done - arrivals, lengths, period_ms=period_ms, every=settings.every)


@dataclass(frozen=True)
class Detector:
    """A detector in its worker, the settings that it is used with, and the frames that are sent to it, uint8 ``(n, 128, 128)``."""

    engine: TimedWorker
    settings: Settings
    images: np.ndarray

    def answer(self, start: int) -> list[Detections]:
        """One call: boxes for the batch from this frame on. After the last frame, the video begins again.

        Raises:
            EngineError: it does not take such images, or its answer does not have a detector's layout.
        """
        size, inputs = self.settings.size, self.engine.worker.inputs
        if len(inputs) != 1:
            raise EngineError(f"the detector has {len(inputs)} inputs, expected one of shape (N, 1 or 3, {size}, {size})")
        images = self.images.take(range(start, start + self.settings.batch), axis=0, mode="wrap")
        pixels = prepared(images, size, channels=3 if inputs[0].shape[1:2] == (3,) else 1)
        outputs = self.engine.infer({inputs[0].name: pixels})
        found = detections(next(iter(outputs.values())), self.settings, scale=SIDE / size)
        if len(found) != len(images):
            raise EngineError(f"the detector answers {len(found)} frames of a batch of {len(images)}")
        return found

    def answers(self) -> list[Detections]:
        """Boxes for each frame."""
        starts = range(0, len(self.images), self.settings.batch)
        return [boxes for start in starts for boxes in self.answer(start)][: len(self.images)]

    def time_ms(self, feeds: Mapping[str, np.ndarray]) -> float:
        """Time of a call that begins at the frame ``start``."""
        return timed_ms(lambda: self.answer(int(feeds["start"])))


# ---- a trial

OF_REFERENCE, OF_SLOW = 1.4, 0.85  # a frame's period: of the reference's time, and at most of the slow detectors' times
WORTH_GRADING = 1.15  # how much longer than the reference's time that must be
SLOW = ("eager", "first")
BUDGET = 1.5  # periods from a frame's arrival to its boxes


@dataclass(frozen=True)
class Trial:
    """A video and how detectors answered it: "eager", which is PyTorch, the "first" version, the "reference" and "yours".

    Attributes:
        frames: the video.
        settings: of each detector.
        found: boxes of "eager" and "yours" in each frame that was sent to them.
        call_ms: times of calls of each detector, in milliseconds.
    """

    frames: list[Frame]
    settings: Mapping[str, Settings]
    found: Mapping[str, list[Detections]]
    call_ms: Mapping[str, np.ndarray]

    def frame_ms(self, name: str) -> float:
        """Median time for one call of a detector, in milliseconds."""
        return float(np.median(self.call_ms[name]))

    @property
    def _longest_ms(self) -> float:
        return OF_SLOW * min(map(self.frame_ms, SLOW))

    @property
    def can_tell(self) -> bool:
        """Whether a camera is slow enough for the reference and too fast for the slow ones. Otherwise speed cannot be judged here."""
        return WORTH_GRADING * self.frame_ms("reference") <= self._longest_ms

    @property
    def period_ms(self) -> float:
        """Time from one frame of the camera to the next."""
        wanted = OF_REFERENCE * self.frame_ms("reference")
        return min(wanted, self._longest_ms) if self.can_tell else wanted

    def replayed(self, name: str, call_ms: np.ndarray) -> Replay:
        """What happens to the frames that are sent to a detector whose calls take these times."""
        sent = len(self.frames[:: self.settings[name].every])
        return replay(call_ms, sent, self.settings[name], self.period_ms)

    @cached_property
    def replay(self) -> Replay:
        """What happens to the frames that your settings send to your detector."""
        return self.replayed("yours", self.call_ms["yours"])

    @cached_property
    def shown(self) -> Matched:
        """Your boxes on every frame."""
        return matched(self.replay.shown(self.found["yours"], len(self.frames)), self.frames)

    @cached_property
    def whole_curve(self) -> Matched:
        """The boxes of the given detector in PyTorch, without a time limit."""
        return matched(self.found["eager"], self.frames)

    @cached_property
    def quality(self) -> Quality:
        """Quality of your boxes."""
        return self.shown.quality()

    @cached_property
    def given(self) -> Quality:
        """Quality of the given detector's boxes."""
        return self.whole_curve.quality()
