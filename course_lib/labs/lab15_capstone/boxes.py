"""Boxes: read from a detector's answer in YOLO's layout, freed from doubles, and compared with the truth.

Source of the accuracy: Everingham et al., The Pascal Visual Object Classes Challenge (2010), section 4.2, with the area under the whole
precision envelope; a box may match the best true box that is still free, as in COCO's evaluation (Lin et al. 2014).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from course_lib.errors import EngineError
from course_lib.labs.lab15_capstone.given import Settings
from course_lib.models.digit_video import Frame

CANDIDATES = 200  # boxes a frame, the best ones, that are compared with one another: an answer of thousands costs no more
SHOWN = 50  # boxes a frame at most
MOST_CELLS = 25_200  # YOLO at 640 pixels has 8400 columns, older versions 25 200
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
    if answer.ndim != 3 or answer.shape[1] < rows or not 1 <= answer.shape[2] <= MOST_CELLS or answer.dtype.kind != "f":
        raise EngineError(
            f"the detector answers with {answer.dtype} of shape {answer.shape}, expected floats (N, 4 + classes, cells) "
            f"with at least {rows} rows and at most {MOST_CELLS:,} cells"
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
    low = np.maximum(*_pairs(ours[:, :2] - ours[:, 2:] / 2, theirs[:, :2] - theirs[:, 2:] / 2))
    high = np.minimum(*_pairs(ours[:, :2] + ours[:, 2:] / 2, theirs[:, :2] + theirs[:, 2:] / 2))
    inside = np.clip(high - low, 0, None).prod(axis=2)
    return inside / (ours[:, 2:].prod(axis=1)[:, None] + theirs[:, 2:].prod(axis=1) - inside)


def _pairs(ours: np.ndarray, theirs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return ours[:, None], theirs[None]


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
class Scored:
    """All boxes of a video, best first, and the number of digits.

    Attributes:
        scores, classes, hits: score and class of each box, and whether it found a digit; ``(boxes,)``.
        truths: number of digits of each class, ``(10,)``.
    """

    scores: np.ndarray
    classes: np.ndarray
    hits: np.ndarray
    truths: np.ndarray

    def curve(self, digit: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Recall and precision after each box, of one class or of all; ``(boxes,)`` each."""
        hits = self.hits if digit is None else self.hits[self.classes == digit]
        total = self.truths.sum() if digit is None else self.truths[digit]
        right = np.cumsum(hits)
        return right / max(total, 1), right / np.arange(1, len(hits) + 1)


def quality(found: Sequence[Detections], truth: Sequence[Frame]) -> Quality:
    """Accuracy figures for the boxes shown in each frame of a video."""
    return _quality(scored(found, truth))


def resampled(found: Sequence[Detections], truth: Sequence[Frame], picks: Sequence[np.ndarray]) -> list[Quality]:
    """Figures for other videos made of the same frames; each of `picks` holds the numbers of one video's frames, ``(frames,)``."""
    hits = [_hits(boxes, frame) for boxes, frame in zip(found, truth, strict=True)]
    return [_quality(_merged([found[k] for k in pick], [truth[k] for k in pick], [hits[k] for k in pick])) for pick in picks]


def _quality(all_boxes: Scored) -> Quality:
    precisions = [_average_precision(*all_boxes.curve(int(digit))) for digit in np.flatnonzero(all_boxes.truths)]
    right, shown = int(all_boxes.hits.sum()), len(all_boxes.hits)
    return Quality(
        mean_ap=float(np.mean(precisions)),
        false_share=1 - right / shown if shown else 0.0,
        found_share=right / int(all_boxes.truths.sum()),
    )


def scored(found: Sequence[Detections], truth: Sequence[Frame]) -> Scored:
    """Which boxes found a digit. Within a frame, boxes are matched to digits in the order of their scores."""
    return _merged(found, truth, [_hits(boxes, frame) for boxes, frame in zip(found, truth, strict=True)])


def _merged(found: Sequence[Detections], truth: Sequence[Frame], hits: Sequence[np.ndarray]) -> Scored:
    scores = np.concatenate([boxes.scores for boxes in found])
    order = np.argsort(-scores, kind="stable")
    return Scored(
        scores=scores[order],
        classes=np.concatenate([boxes.classes for boxes in found])[order],
        hits=np.concatenate(hits)[order],
        truths=np.bincount(np.concatenate([frame.classes for frame in truth]), minlength=10),
    )


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
