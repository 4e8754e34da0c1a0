"""The accuracy of boxes, compared with the truth.

Source: Everingham et al., The Pascal Visual Object Classes Challenge (2010), section 4.2, with the area under the whole precision
envelope; a box may match the best true box that is still free, as in COCO's evaluation (Lin et al. 2014).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from course_lib.labs.lab15_capstone.given import Detections, iou
from course_lib.models.digit_video import Frame

OVERLAP = 0.5  # intersection over union from which a box has found a digit


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
