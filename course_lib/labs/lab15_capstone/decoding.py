"""From a detector's answer in YOLO's layout to the displayed boxes: decoding and non-maximum suppression."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from course_lib.errors import EngineError
from course_lib.labs.lab15_capstone.settings import Settings

CANDIDATES = 200  # boxes a frame, the best ones, that are compared with one another: an answer of thousands costs no more
SHOWN = 50  # boxes a frame at most
MOST_CELLS = 25_200  # YOLO at 640 pixels has 8400 columns, older versions 25 200


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
