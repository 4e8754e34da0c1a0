"""A trial: a hand-in's detector, the reference and PyTorch on one video, and what follows for every frame of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from course_lib.labs import lab09_reference
from course_lib.labs.lab09_accuracy import Quality, quality
from course_lib.labs.lab09_detections import Detections
from course_lib.labs.lab09_pipeline import Recording
from course_lib.labs.lab09_queue import Replay, replay
from course_lib.labs.lab09_settings import Settings
from course_lib.models.digit_video import Frame

# From one frame to the next: so many times the reference's time for a frame, but at most that part of PyTorch's, which therefore
# does not keep up.
OF_REFERENCE, OF_EAGER = 1.4, 0.85
WORTH_GRADING = 1.15
OVER_REFERENCE = 1.35  # the budget is never tighter than so many times the reference's own 99th percentile
BUDGET = 1.5  # periods from a frame's arrival to its boxes, for full points


@dataclass(frozen=True)
class Trial:
    """A video and what three detectors made of it.

    Attributes:
        frames: the video.
        settings: the hand-in's.
        recordings: by name: eager, reference, yours.
    """

    frames: list[Frame]
    settings: Settings
    recordings: Mapping[str, Recording]

    def frame_ms(self, name: str) -> float:
        """Median time for one call of a detector, in milliseconds."""
        return float(np.median(self.recordings[name].call_ms))

    @property
    def period_ms(self) -> float:
        """From one frame of the source to the next."""
        wanted = OF_REFERENCE * self.frame_ms("reference")
        return min(wanted, OF_EAGER * self.frame_ms("eager")) if self.can_tell else wanted

    @property
    def can_tell(self) -> bool:
        """Whether some camera is slow enough for the reference and too fast for PyTorch: otherwise speed cannot be judged here."""
        return WORTH_GRADING * self.frame_ms("reference") <= OF_EAGER * self.frame_ms("eager")

    @property
    def budget_ms(self) -> float:
        """Latency that 99 % of the frames have to stay under. A busy machine makes the reference late as well: allowed for."""
        return max(BUDGET * self.period_ms, OVER_REFERENCE * self._reference.p99_ms)

    @property
    def lost_by_reference(self) -> float:
        """Share of the frames that the reference loses, on a machine that is busy."""
        return self._reference.lost_share

    @cached_property
    def _reference(self) -> Replay:
        own = self.recordings["reference"]
        return replay(own.call_ms, len(own.found), lab09_reference.SETTINGS, self.period_ms)

    @cached_property
    def replay(self) -> Replay:
        """What happens to the frames that the hand-in's settings send to its detector."""
        own = self.recordings["yours"]
        return replay(own.call_ms, len(own.found), self.settings, self.period_ms)

    @cached_property
    def shown(self) -> list[Detections]:
        """The hand-in's boxes on every frame."""
        return self.replay.shown(self.recordings["yours"].found, len(self.frames))

    @cached_property
    def quality(self) -> Quality:
        """Of the boxes that are shown."""
        return quality(self.shown, self.frames)

    @cached_property
    def given(self) -> Quality:
        """Of the given detector in PyTorch, had it all the time in the world."""
        return quality(self.recordings["eager"].found, self.frames)

    @cached_property
    def detected(self) -> Quality:
        """Of the hand-in's detector on the frames that were sent to it, lost or not: what the network itself can do."""
        return quality(self.recordings["yours"].found, self.frames[:: self.settings.every])

    def figures(self) -> dict[str, float]:
        """The figures of the verdict, for reports; times in milliseconds."""
        return {
            "mean_ap": self.quality.mean_ap,
            "mean_ap_given": self.given.mean_ap,
            "false_share": self.quality.false_share,
            "false_share_given": self.given.false_share,
            "p99_ms": self.replay.p99_ms,
            "period_ms": self.period_ms,
            "lost_share": self.replay.lost_share,
            **{f"{name}_ms": self.frame_ms(name) for name in self.recordings},
        }
