"""The recording of lab 05's scanners for calibration: real digits, and three faulty scans among them."""

from __future__ import annotations

from functools import cache

import numpy as np

from course_lib.models import digits
from course_lib.models.digit_dataset import perturb

SCANS = 1000
FULL_INK = 255  # a scanner's count for a pixel full of ink; 0 is paper
GAIN = 50  # of the amplifier while it was overdriven
STUCK_BIT = 1 << 12
STUCK_ROW = 5


def calibration_scans() -> np.ndarray:
    """1000 scans as the scanners deliver them: counts, uint16, shape ``(1000, 1, 32, 32)``. Each call returns a new array.

    Three scans are faulty, as in any recording. One was taken with an overdriven amplifier (50 times too bright). One has a
    row of pixels with a stuck bit (4096 too much). One has ink and paper exchanged. The network was trained on counts
    divided by 255. The other scans are digits of the training part, moved, rotated, dimmed and made noisy like `fresh_digits`.
    """
    return _recorded().copy()


def faulty_scans() -> tuple[int, int, int]:
    """The faulty scans: overdriven, with a stuck bit, inverted."""
    overdriven, stuck, inverted = (int(n) for n in np.random.default_rng([_SEED, 1]).choice(SCANS, 3, replace=False))
    return overdriven, stuck, inverted


_SEED = 303


@cache
def _recorded() -> np.ndarray:
    rng = np.random.default_rng(_SEED)
    images = digits("train").images
    ink = perturb(images[rng.permutation(len(images))[:SCANS]], rng)
    counts = FULL_INK * np.clip(ink, 0, None)
    overdriven, stuck, inverted = faulty_scans()
    counts[overdriven] *= GAIN
    counts[stuck, 0, STUCK_ROW] += STUCK_BIT
    counts[inverted] = np.clip(FULL_INK - counts[inverted], 0, None)
    return np.rint(counts).astype(np.uint16)
