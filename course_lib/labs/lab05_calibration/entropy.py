"""Interpretations of the entropy method that differ in one rule, to show learners which rule their calibrator does not follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from course_lib.precision import Histogram
from course_lib.precision.calibration.calibrators import LEVELS, UNSEEN


@dataclass(frozen=True)
class Reading:
    """The method of lecture 6, one field for each rule that a text may leave open. The defaults are the lecture's rules.

    Attributes:
        leveled: the first bin gets the count of the second.
        equal_widths: bin k of n is in group ``k * 128 // n``. Otherwise groups have ``n // 128`` bins, and the last one has the rest.
        clipped_in_q: the clipped values also count in Q.
        over_all: a group's count is spread over all its bins, including empty ones.
        unseen: count in Q for a bin that is empty in Q but not in P; 0 leaves the term out.
        after_division: Q gets that count after the division by its sum.
        largest: of equal candidates, the largest one wins.
    """

    leveled: bool = True
    equal_widths: bool = True
    clipped_in_q: bool = False
    over_all: bool = False
    unseen: float = UNSEEN
    after_division: bool = False
    largest: bool = True

    def border(self, histogram: Histogram) -> int:
        """Number of bins below the threshold that this interpretation gives."""
        counts = histogram.counts[: max(histogram.used, LEVELS)].astype(float)
        if self.leveled:
            counts[0] = counts[1]
        scores = np.array([self._divergence(counts, kept) for kept in range(LEVELS, len(counts) + 1)])
        best = np.flatnonzero(scores == scores.min())
        return LEVELS + int(best[-1 if self.largest else 0])

    def _divergence(self, counts: np.ndarray, kept: int) -> float:
        inside = counts[:kept]
        if not inside.any():
            return float("inf")
        p = inside.copy()
        p[-1] += counts[kept:].sum()
        source, place = p if self.clipped_in_q else inside, np.arange(kept)
        group = place * LEVELS // kept if self.equal_widths else np.minimum(place // (kept // LEVELS), LEVELS - 1)
        takes = np.ones(kept, bool) if self.over_all else source > 0
        share = np.bincount(group, source, LEVELS) / np.maximum(np.bincount(group, takes, LEVELS), 1)
        q = np.where(takes, share[group], 0)
        unseen = (p > 0) & (q == 0)
        if not self.after_division:
            q[unseen] = self.unseen
        p, q = p / p.sum(), q / q.sum()
        if self.after_division:
            q[unseen] = self.unseen
        seen = (p > 0) & (q > 0)
        return float(np.sum(p[seen] * np.log(p[seen] / q[seen])))


_RIGHT = Reading()
_EMPTY = f"A bin that P has and Q leaves empty gets the count {UNSEEN:g} in Q, before P and Q are divided by their sums."
MISTAKES: Mapping[str, Sequence[Reading]] = {
    "Before the search, the first bin is given the count of the second.": (replace(_RIGHT, leveled=False),),
    "Bin k of n bins is in group k * 128 // n, so group widths differ by at most one bin.": (
        replace(_RIGHT, equal_widths=False),
    ),
    "The clipped values are in P's last bin and not in Q.": (replace(_RIGHT, clipped_in_q=True),),
    "A group's count is spread over those of its bins that were not empty.": (replace(_RIGHT, over_all=True),),
    _EMPTY: (
        replace(_RIGHT, unseen=0.0),
        replace(_RIGHT, unseen=1e-12),
        replace(_RIGHT, unseen=1.0),
        replace(_RIGHT, after_division=True),
        replace(_RIGHT, unseen=1e-12, after_division=True),
    ),
    "Of equal candidates, the largest one wins.": (replace(_RIGHT, largest=False),),
}


def broken_rule(wrong: Sequence[tuple[Histogram, float]]) -> str:
    """The rule whose violation explains most of the wrong thresholds, as a sentence; empty if none explains three of four."""
    explained = {
        rule: max(sum(abs(t / h.bin_width - reading.border(h)) < 1 for h, t in wrong) for reading in readings)
        for rule, readings in MISTAKES.items()
    }
    best = max(explained, key=explained.__getitem__)
    return best if 4 * explained[best] >= 3 * len(wrong) > 0 else ""
