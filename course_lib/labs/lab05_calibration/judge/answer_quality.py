"""The error of an INT8 engine's answers compared with the reference's, and whether its ranges are too small or too large."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from course_lib.labs.framework.answers import NOT_FINITE_DB, by_batch_size, decibels, logits, worst_decibels
from course_lib.labs.framework.criteria import HALF, Criterion
from course_lib.labs.framework.examination import TimedWorker
from course_lib.models import Digits

BATCH = 4
# SQNR: how far below the reference's on the same fresh images, in dB, and a floor. Cleaning the recording earns full points, and
# clipping at its best half of them. Measured without the two bright scans: min-max (the reference) 41, entropy and mean squared
# error 42, percentile 99.99 40, 99.97 35, 99.9 26. With them: entropy 34, percentile 99.95 34, 99.9 30, 99.85 26, 99.97 23, 99.5
# 18, 99 and 99.99 15, mean squared error 13, min-max -2. From one set of fresh images to another all move together by 0.5, and a
# distance from the reference by 0.3.
FULL_LOSS_DB, PARTIAL_LOSS_DB, FLOOR_DB = 5.0, 14.0, 18.0
FAR_BETTER_DB = 15.0  # above the reference's SQNR: an instructor has to look
FULL_LOSS, PARTIAL_LOSS = 2.0, 4.0  # of accuracy, in percentage points below PyTorch

_DIMMED, _DIMMED_IMAGES = 0.5, 64  # contrast at which hardly anything is clipped any more
_DEAD = 0.1  # share of the float logits' spread below which an engine does not look at its image


@dataclass(frozen=True)
class Quality:
    """Figures of one engine.

    Attributes:
        sqnr_db: SQNR of the logits relative to PyTorch's on fresh images.
        reference_sqnr_db: SQNR of the reference engine on the same images, None without the reference.
        dimmed_sqnr_db: SQNR on images of half the contrast. It rises if the ranges are too narrow, because less is clipped. It
            falls if they are too wide, because fewer steps are used.
        accuracy, accuracy_eager: share of right answers, 0 to 1, of the engine and of PyTorch.
        spread: standard deviation of the logits over the images, divided by PyTorch's; 0 if they are not finite.
    """

    sqnr_db: float
    reference_sqnr_db: float | None
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

    @property
    def far_better(self) -> bool:
        """Closer to float than INT8 can be: the best known ranges are 1 dB above the reference, and 5 dB with float ends."""
        return self.reference_sqnr_db is not None and self.sqnr_db > self.reference_sqnr_db + FAR_BETTER_DB

    def _within(self, loss_db: float, loss: float) -> bool:
        return self.sqnr_db >= self._needed(loss_db) and 100 * (self.accuracy_eager - self.accuracy) <= loss

    def _needed(self, loss_db: float) -> float:
        return FLOOR_DB if self.reference_sqnr_db is None else max(self.reference_sqnr_db - loss_db, FLOOR_DB)

    def criteria(self) -> list[Criterion]:
        """The limits that need no reference, for all points and for half of them."""
        lost = 100 * (self.accuracy_eager - self.accuracy)
        of_accuracy = "percentage points of accuracy less than PyTorch"
        return [
            Criterion(of_accuracy, f"{lost:.1f}", f"at most {FULL_LOSS:g}", lost <= FULL_LOSS),
            Criterion(of_accuracy, f"{lost:.1f}", f"at most {PARTIAL_LOSS:g}", lost <= PARTIAL_LOSS, HALF),
            Criterion(
                "SQNR of the logits", f"{self.sqnr_db:.1f} dB", f"at least {FLOOR_DB:g} dB", self.sqnr_db >= FLOOR_DB, HALF
            ),
        ]

    def measured(self) -> str:
        """The figures, in two sentences."""
        reference = "" if self.reference_sqnr_db is None else f"; the reference has {self.reference_sqnr_db:.1f} dB"
        return (
            f"The logits have {self.sqnr_db:.1f} dB SQNR{reference}. "
            f"{100 * self.accuracy:.1f} % of the fresh images are right; PyTorch has {100 * self.accuracy_eager:.1f} %."
        )

    def message(self) -> str:
        """The result, and the requirements for full points."""
        return (
            f"{self.measured()} "
            f"Full points need at least {self._needed(FULL_LOSS_DB):.1f} dB and at most {FULL_LOSS:g} percentage points less than PyTorch."
        )

    def hint(self) -> str:
        """A hint at what is wrong with the ranges, empty at full points."""
        if self.tier == "full":
            return ""
        if self.sqnr_db == NOT_FINITE_DB:
            return "The answers hold NaN or infinity. Is one of your thresholds 0, NaN or infinity?"
        if self.spread < _DEAD:
            return (
                "The logits are the same for every image, because the steps are larger than the values. Was the calibration data "
                "prepared like the network's input, with ink from 0 to 1?"
            )
        if self.dimmed_sqnr_db > self.sqnr_db:
            return (
                f"At half the contrast your engine has {self.dimmed_sqnr_db:.0f} dB, so it loses by clipping: the ranges are too "
                "narrow. What share of the good values lies above your thresholds? Does the data have to contain the faulty scans?"
            )
        return (
            f"At half the contrast your engine has {self.dimmed_sqnr_db:.0f} dB, so its steps are too coarse: the ranges are too "
            "wide. Draw the histogram of `image` with your threshold. How many scans set it?"
        )

    def figures(self) -> dict[str, float]:
        """All values by name, for reports."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def quality(
    eager: TimedWorker, reference: TimedWorker | None, yours: TimedWorker, fresh: Digits, sizes: Sequence[int] = (BATCH,)
) -> Quality:
    """Run the engines on the same fresh images.

    Args:
        reference: None in the learner's bundle.
        sizes: batch sizes. The SQNR is that of the size at which an engine is worst.

    Raises:
        EngineError: the submission rejects a batch or does not answer with logits.
    """
    want_by_size, have_by_size = (by_batch_size(engine, fresh.images, sizes) for engine in (eager, yours))
    theirs_by_size = by_batch_size(reference, fresh.images, sizes) if reference else None
    want, have = np.concatenate(want_by_size), np.concatenate(have_by_size)
    dim = _DIMMED * fresh.images[:_DIMMED_IMAGES]
    right, right_eager = (float((answers.argmax(1) == fresh.labels).mean()) for answers in (have, want))
    return Quality(
        sqnr_db=worst_decibels(want_by_size, have_by_size),
        reference_sqnr_db=worst_decibels(want_by_size, theirs_by_size) if theirs_by_size else None,
        dimmed_sqnr_db=decibels(logits(eager, dim, [BATCH]), logits(yours, dim, [BATCH])),
        accuracy=right,
        accuracy_eager=right_eager,
        spread=float(have.std(0).mean() / want.std(0).mean()) if np.isfinite(have).all() else 0.0,
    )
