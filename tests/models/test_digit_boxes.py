"""Overlap and mean average precision of boxes, against independent implementations."""

from __future__ import annotations

import numpy as np
import pytest

from course_lib.models.digit_boxes import Detections, Quality, iou, matched
from course_lib.models.digit_video import Frame


def quality_of(shown: list[Detections], truth: list[Frame]) -> Quality:
    return matched(shown, truth).quality()


def overlap(a, b) -> float:
    """Intersection over union by counting tenths of pixels."""
    grid = [np.linspace(0, 64, 641)[:-1] + 0.05] * 2
    inside = [
        (abs(grid[0][None] - x) < w / 2) & (abs(grid[1][:, None] - y) < h / 2) for x, y, w, h in (np.asarray(a), np.asarray(b))
    ]
    return (inside[0] & inside[1]).sum() / (inside[0] | inside[1]).sum()


def boxes(rng, n) -> np.ndarray:
    return np.column_stack([rng.uniform(16, 48, (n, 2)), rng.uniform(6, 30, (n, 2))])


def test_overlap_is_what_counting_says():
    ours, theirs = boxes(np.random.default_rng(0), 6), boxes(np.random.default_rng(1), 5)
    counted = [[overlap(a, b) for b in theirs] for a in ours]
    np.testing.assert_allclose(iou(ours, theirs), counted, atol=0.02)


def frame(*digits) -> Frame:
    """A frame that shows digits at given places."""
    return Frame(
        np.zeros((128, 128), np.uint8),
        np.array([(x, 20, 10, 10) for _, x in digits], np.float32).reshape(-1, 4),
        np.array([digit for digit, _ in digits], np.int64),
    )


def found(*shown) -> Detections:
    shown = sorted(shown, key=lambda box: -box[2])
    return Detections(
        np.array([(x, 20, 10, 10) for _, x, _ in shown], float).reshape(-1, 4),
        np.array([score for *_, score in shown], float),
        np.array([digit for digit, *_ in shown], np.int64),
    )


def test_average_precision_by_hand():
    truth = [frame((1, 20), (2, 60)), frame((1, 20))]
    # Class 1: hit .9, false .8, hit .7: precision 1, 1/2, 2/3 at recall 1/2, 1/2, 1; area 1/2 * 1 + 1/2 * 2/3. Class 2: never found.
    got = quality_of([found((1, 20, 0.9), (1, 90, 0.8)), found((1, 21, 0.7))], truth)
    assert got.mean_ap == pytest.approx((5 / 6 + 0) / 2)
    assert got.false_share == pytest.approx(1 / 3) and got.found_share == pytest.approx(2 / 3)


def test_each_digit_is_found_once_and_only_as_itself():
    assert quality_of([found((1, 20, 0.9), (1, 21, 0.8))], [frame((1, 20))]).false_share == 0.5
    assert quality_of([found((7, 20, 0.9))], [frame((1, 20))]).mean_ap == 0
    assert quality_of([found((1, 26, 0.9))], [frame((1, 20))]).mean_ap == 0  # overlap 4 / 16
    assert quality_of([found((1, 23, 0.9))], [frame((1, 20))]).mean_ap == 1  # overlap 7 / 13
    nothing = quality_of([found()], [frame((1, 20))])
    assert (nothing.mean_ap, nothing.false_share, nothing.found_share) == (0, 0, 0)


def slow_mean_ap(shown, truth) -> float:
    """For each class: sort all boxes, match each, sum precision over the steps of recall with the best precision to the right."""
    areas = []
    for digit in sorted({int(c) for f in truth for c in f.classes}):
        ranked = sorted(
            (
                (s, i, b)
                for i, d in enumerate(shown)
                for b, s, c in zip(d.boxes, d.scores, d.classes, strict=True)
                if c == digit
            ),
            key=lambda item: -item[0],
        )
        free = {(i, k) for i, f in enumerate(truth) for k, c in enumerate(f.classes) if c == digit}
        total, points, right = len(free), [], 0
        for rank, (_, i, box) in enumerate(ranked, 1):
            choices = [(overlap(box, truth[i].boxes[k]), k) for j, k in free if j == i]
            if choices and max(choices)[0] >= 0.5:
                free.remove((i, max(choices)[1]))
                right += 1
            points.append((right / total, right / rank))
        steps = [r / total for r in range(1, right + 1)]
        areas.append(sum(max(p for recall, p in points if recall >= step - 1e-9) for step in steps) / total)
    return float(np.mean(areas))


def test_mean_average_precision_is_what_the_slow_one_says():
    rng = np.random.default_rng(5)
    truth, shown = [], []
    for _ in range(8):
        where, digits = boxes(rng, 4), rng.integers(0, 3, 4)
        truth.append(Frame(np.zeros((128, 128), np.uint8), where.astype(np.float32), digits))
        guess = np.concatenate([where + rng.normal(0, 1.5, where.shape), boxes(rng, 2)])
        scores = rng.uniform(0, 1, 6)
        order = np.argsort(-scores)
        shown.append(Detections(guess[order], scores[order], np.concatenate([digits, rng.integers(0, 3, 2)])[order]))
    assert quality_of(shown, truth).mean_ap == pytest.approx(slow_mean_ap(shown, truth), abs=1e-6)
