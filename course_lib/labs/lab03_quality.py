"""How far an INT8 engine's answers are from the float network's, beside the reference's, and which way they err."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from course_lib.labs.answers import NOT_FINITE_DB, decibels, logits
from course_lib.labs.base import TimedWorker
from course_lib.models import Digits

BATCH = 4
# SQNR: how far below the reference's on the same fresh images, in dB, and a floor. Cleaning the recording earns full points, and
# clipping at its best half of them. Measured without the two bright scans: min-max (the reference) 41, entropy and mean squared
# error 42, percentile 99.99 40, 99.97 35, 99.9 26. With them: entropy 34, percentile 99.95 34, 99.9 30, 99.85 26, 99.97 23, 99.5
# 18, 99 and 99.99 15, mean squared error 13, min-max -2. From one set of fresh images to another all move together by 0.5, and a
# distance from the reference by 0.3.
FULL_LOSS_DB, PARTIAL_LOSS_DB, FLOOR_DB = 5.0, 14.0, 18.0
FULL_LOSS, PARTIAL_LOSS = 2.0, 4.0  # of accuracy, in percentage points below PyTorch

_DIMMED, _DIMMED_IMAGES = 0.5, 64  # contrast at which hardly anything is clipped any more
_DEAD = 0.1  # share of the float logits' spread below which an engine does not look at its image


@dataclass(frozen=True)
class Quality:
    """Figures of one engine.

    Attributes:
        sqnr_db: of the logits against PyTorch's on fresh images.
        reference_sqnr_db: the reference engine's, on the same images.
        dimmed_sqnr_db: on images of half the contrast. Ranges that are too narrow clip these less and it rises; ranges that are
            too wide leave these fewer steps and it falls.
        accuracy, accuracy_eager: share of right answers, 0 to 1, of the engine and of PyTorch.
        spread: standard deviation of the logits from image to image over that of PyTorch's; 0 where they are not finite.
    """

    sqnr_db: float
    reference_sqnr_db: float
    dimmed_sqnr_db: float
    accuracy: float
    accuracy_eager: float
    spread: float

    @property
    def tier(self) -> str:
        """``"full"``, ``"partial"`` or ``"none"``."""
        if self._within(FULL_LOSS_DB, FULL_LOSS):
            return "full"
        return "partial" if self._within(PARTIAL_LOSS_DB, PARTIAL_LOSS) else "none"

    def _within(self, loss_db: float, loss: float) -> bool:
        return self.sqnr_db >= self._needed(loss_db) and 100 * (self.accuracy_eager - self.accuracy) <= loss

    def _needed(self, loss_db: float) -> float:
        return max(self.reference_sqnr_db - loss_db, FLOOR_DB)

    def message(self) -> str:
        """What was found, and what full points need."""
        return (
            f"Logits at {self.sqnr_db:.1f} dB of PyTorch's, the reference's at {self.reference_sqnr_db:.1f} dB; "
            f"{100 * self.accuracy:.1f} % of the fresh images right, PyTorch {100 * self.accuracy_eager:.1f} %. "
            f"Full points need {self._needed(FULL_LOSS_DB):.1f} dB and at most {FULL_LOSS:g} points of accuracy lost."
        )

    def hint(self) -> str:
        """Which way the ranges err, empty at full points."""
        if self.tier == "full":
            return ""
        if self.sqnr_db == NOT_FINITE_DB:
            return "The answers hold NaN or infinity. Is one of your thresholds 0, or no number itself?"
        if self.spread < _DEAD:
            return (
                "Whatever the image, the logits are the same: the steps are larger than the values. Was the calibration data "
                "prepared as the network's input is, ink from 0 to 1?"
            )
        if self.dimmed_sqnr_db > self.sqnr_db:
            return (
                f"At half the contrast your engine has {self.dimmed_sqnr_db:.0f} dB, so it loses by clipping: the ranges are too "
                "narrow. What share of good values lies above your thresholds, and must they pay for the faulty scans?"
            )
        return (
            f"At half the contrast your engine has {self.dimmed_sqnr_db:.0f} dB, so its steps are too coarse: the ranges are too "
            "wide. Draw the histogram of `image` with your threshold. How many scans set it?"
        )

    def figures(self) -> dict[str, float]:
        """All of it by name, for reports."""
        return asdict(self)


def quality(eager: TimedWorker, reference: TimedWorker, yours: TimedWorker, fresh: Digits) -> Quality:
    """Let three engines answer the same fresh images.

    Raises:
        EngineError: the hand-in refuses a batch or answers with something else than logits.
    """
    want, have = (logits(engine, fresh.images, [BATCH]) for engine in (eager, yours))
    dim = _DIMMED * fresh.images[:_DIMMED_IMAGES]
    right, right_eager = (float((answers.argmax(1) == fresh.labels).mean()) for answers in (have, want))
    return Quality(
        sqnr_db=decibels(want, have),
        reference_sqnr_db=decibels(want, logits(reference, fresh.images, [BATCH])),
        dimmed_sqnr_db=decibels(logits(eager, dim, [BATCH]), logits(yours, dim, [BATCH])),
        accuracy=right,
        accuracy_eager=right_eager,
        spread=float(have.std(0).mean() / want.std(0).mean()) if np.isfinite(have).all() else 0.0,
    )
