"""Whether an engine of lab 02 computes the given function: on digits, and on images that no classifier was made for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from course_lib.labs.framework.answers import check_every_size, decibels, fresh_images, logits
from course_lib.labs.framework.examination import Examiner, TimedWorker

IMAGES = 64  # of each family
BATCHES = (1, 3, 8, 32)
# Logits against PyTorch's on the same images, in dB. Measured with ONNX Runtime: rewritten in FP32 130 to 137, an epsilon forgotten
# 65, one of two averaged branches dropped 24, statistics over the batch instead of the image 23.
ENOUGH_DB, PARTIAL_DB = 100.0, 40.0
SIZES = (-10, 10)  # exponents of noise: 0.001 to 1000. Rewritten in FP32 has 130 dB or more at each
MARGIN_DB = 10.0  # below the reference, where that is less than enough: on a GPU TF32 rounds both


@dataclass(frozen=True)
class Equality:
    """Signal-to-noise ratios of logits in dB, for the worst family of images.

    Attributes:
        sqnr_db: SQNR of the submission, at the worst batch size.
        reference_db: SQNR of the reference on the same images, None without the reference.
        family: the images on which the submission is worst.
    """

    sqnr_db: float
    reference_db: float | None
    family: str

    @property
    def needed_db(self) -> float:
        """The ratio in dB that full points need."""
        return ENOUGH_DB if self.reference_db is None else min(ENOUGH_DB, self.reference_db - MARGIN_DB)

    @property
    def tier(self) -> str:
        """The tier of `Outcome`."""
        if self.sqnr_db >= self.needed_db:
            return "full"
        return "partial" if self.sqnr_db >= PARTIAL_DB else "none"


def equality(given: TimedWorker, reference: TimedWorker | None, candidate: TimedWorker, examiner: Examiner) -> Equality:
    """Send the same fresh images to all three, in batches of several sizes, and to the candidate in batches of every size.

    Raises:
        EngineError: the candidate rejects a batch, answers one of them like another network, or does not answer with logits.
    """
    found, theirs = {}, list[float]()
    for family, images in _families(examiner).items():
        want = logits(given, images, BATCHES)
        have = logits(candidate, images, BATCHES)
        least = decibels(want, have)
        if least >= PARTIAL_DB:
            least = min(least, check_every_size(given, candidate, images, range(1, BATCHES[-1] + 1), PARTIAL_DB))
        found[family] = least
        if reference:
            theirs.append(decibels(want, logits(reference, images, BATCHES)))
    family = min(found, key=lambda name: found[name])
    return Equality(found[family], min(theirs, default=None), family)


def _families(examiner: Examiner) -> dict[str, np.ndarray]:
    """Digits and noise, because a network that approximates only the answers on digits fails on noise.

    Each image of the last family has its own size, so a network that is right for inputs of some size alone fails, too.
    """
    rng, shape = examiner.rng(), (IMAGES, 1, 32, 32)
    sizes = np.exp2(rng.uniform(*SIZES, (IMAGES, 1, 1, 1))).astype(np.float32)
    return {
        "fresh digits": fresh_images(examiner, IMAGES).images,
        "noise": rng.random(shape, dtype=np.float32),
        "faint and loud noise": sizes * rng.standard_normal(shape, dtype=np.float32),
    }
