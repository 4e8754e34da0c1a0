"""Boxes around the digits of a video: what a detector found, and how much of it is right.

Source: Everingham et al., The Pascal Visual Object Classes Challenge (2010), section 4.2, with the area under the whole precision
envelope; a box may match the best true box that is still free, as in COCO's evaluation (Lin et al. 2014).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from course_lib.models.digit_video import Frame

OVERLAP = 0.5  # intersection over union from which a box has found a digit


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


def iou(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Intersection over union of every pair of boxes, ``(n, 4)`` and ``(m, 4)`` to ``(n, m)``."""
    ours, theirs = ours[:, None], theirs[None]
    low = np.maximum(ours[..., :2] - ours[..., 2:] / 2, theirs[..., :2] - theirs[..., 2:] / 2)
    high = np.minimum(ours[..., :2] + ours[..., 2:] / 2, theirs[..., :2] + theirs[..., 2:] / 2)
    inside = np.clip(high - low, 0, None).prod(axis=2)
    return inside / (ours[..., 2:].prod(axis=2) + theirs[..., 2:].prod(axis=2) - inside)


@dataclass(frozen=True)
class Quality:
    """Figures over a video.

    Attributes:
        mean_ap: average precision, mean over the classes that occur, 0 to 1.
        false_share: part of the shown boxes that found no digit of their class, 0 to 1; 0 if none is shown.
        found_share: part of the digits that were found, 0 to 1.
    """

    mean_ap: float
    false_share: float
    found_share: float


@dataclass(frozen=True)
class Matched:
    """The boxes in each frame of a video, and which of them found a digit, from `matched`."""

    found: Sequence[Detections]
    hits: Sequence[np.ndarray]
    truth: Sequence[Frame]

    def resampled(self, frames: np.ndarray) -> Matched:
        """Another video, made of the frames with these numbers."""
        return Matched(*([several[k] for k in frames] for several in (self.found, self.hits, self.truth)))

    @cached_property
    def _ranked(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Class of each box and whether it found a digit, best first, and the number of digits of each class."""
        order = np.argsort(-np.concatenate([boxes.scores for boxes in self.found]), kind="stable")
        truths = np.bincount(np.concatenate([frame.classes for frame in self.truth]), minlength=10)
        return np.concatenate([boxes.classes for boxes in self.found])[order], np.concatenate(self.hits)[order], truths

    def curve(self, digit: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Recall and precision after each box, of one class or of all; ``(boxes,)`` each."""
        classes, hits, truths = self._ranked
        if digit is not None:
            hits, truths = hits[classes == digit], truths[digit]
        right = np.cumsum(hits)
        return right / max(truths.sum(), 1), right / np.arange(1, len(hits) + 1)

    def quality(self) -> Quality:
        """The accuracy of all boxes."""
        _, hits, truths = self._ranked
        right, shown = int(hits.sum()), len(hits)
        return Quality(
            mean_ap=float(np.mean([_average_precision(*self.curve(int(digit))) for digit in np.flatnonzero(truths)])),
            false_share=1 - right / shown if shown else 0.0,
            found_share=right / int(truths.sum()),
        )


def matched(found: Sequence[Detections], truth: Sequence[Frame]) -> Matched:
    """Which boxes found a digit. Within a frame, boxes are matched to digits in the order of their scores."""
    return Matched(found, [_hits(boxes, frame) for boxes, frame in zip(found, truth, strict=True)], truth)


def _hits(found: Detections, frame: Frame) -> np.ndarray:
    overlaps = iou(found.boxes, frame.boxes.astype(np.float64)) * (found.classes[:, None] == frame.classes)
    hits = np.zeros(len(found), dtype=bool)
    for index, row in enumerate(overlaps):
        best = int(row.argmax())
        if row[best] >= OVERLAP:
            hits[index] = True
            overlaps[:, best] = 0  # taken
    return hits


def _average_precision(recall: np.ndarray, precision: np.ndarray) -> float:
    """Area under the envelope: at each recall, the best precision that any larger recall has."""
    envelope = np.maximum.accumulate(precision[::-1])[::-1]
    return float(np.sum(np.diff(recall, prepend=0.0) * envelope))
