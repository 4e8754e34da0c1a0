"""A trial: PyTorch, the first version, the reference and a submission on one video, with the latency and the boxes of every frame."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from course_lib.benchmark import Interval
from course_lib.labs.framework.lab import absent
from course_lib.labs.lab15_capstone import given, reference
from course_lib.labs.lab15_capstone.boxes import Quality, quality, resampled
from course_lib.labs.lab15_capstone.given import Detections, Settings
from course_lib.labs.lab15_capstone.pipeline import Recording, Replay, replay
from course_lib.models.digit_video import Frame

# The sandbox and the learner's bundle do not have the reference: there the given detector takes its place.
REFERENCE_SETTINGS: Settings = given.WHOLE_CURVE if absent(reference) else reference.SETTINGS

# From one frame to the next: so many times the reference's time for a frame, but at most that part of what PyTorch and the first
# version need, which therefore do not keep up.
OF_REFERENCE, OF_SLOW = 1.4, 0.85
WORTH_GRADING = 1.15
BUDGET, PARTIAL_BUDGET = 1.5, 3.0  # periods from a frame's arrival to its boxes, for all points and for half of them
SLOW = ("eager", "first")
_RESAMPLES = 200


@dataclass(frozen=True)
class Trial:
    """A video and the answers of four detectors.

    Attributes:
        frames: the video.
        settings: settings of the submission.
        recordings: the detectors' answers by name: eager, first, reference, yours.
        slowest_camera: the reference is absent, so the period is the longest that the grader can use.
    """

    frames: list[Frame]
    settings: Settings
    recordings: Mapping[str, Recording]
    slowest_camera: bool = False

    def frame_ms(self, name: str) -> float:
        """Median time for one call of a detector, in milliseconds."""
        return float(np.median(self.recordings[name].call_ms))

    @property
    def period_ms(self) -> float:
        """Time from one frame of the source to the next."""
        if self.slowest_camera:
            return OF_SLOW * self._slow_ms
        wanted = OF_REFERENCE * self.frame_ms("reference")
        return min(wanted, OF_SLOW * self._slow_ms) if self.can_tell else wanted

    @property
    def can_tell(self) -> bool:
        """Whether some camera is slow enough for the reference and too fast for PyTorch and the first version.

        Otherwise speed cannot be judged on this machine.
        """
        return WORTH_GRADING * self.frame_ms("reference") <= OF_SLOW * self._slow_ms

    @property
    def budget_ms(self) -> float:
        """Limit for the latency of 99 % of the frames."""
        return BUDGET * self.period_ms

    @cached_property
    def replay(self) -> Replay:
        """What happens to the frames that the submission's settings send to its detector."""
        return self._replay("yours", self.settings, self.recordings["yours"].call_ms)

    @cached_property
    def reference_replay(self) -> Replay:
        """The same for the reference, which loses frames or is late only on a machine that is busy."""
        return self._replay("reference", REFERENCE_SETTINGS, self.recordings["reference"].call_ms)

    @cached_property
    def p99_periods(self) -> Interval:
        """Interval of the 99th percentile of the submission's latency, in periods."""
        return _interval(self.replay.p99_ms, [one.p99_ms for one in self._replays], 1 / self.period_ms)

    @cached_property
    def lost_share(self) -> Interval:
        """Interval of the lost share of the sent frames, 0 to 1."""
        return _interval(self.replay.lost_share, [one.lost_share for one in self._replays])

    @cached_property
    def shown(self) -> list[Detections]:
        """The submission's boxes on every frame."""
        return self.replay.shown(self.recordings["yours"].found, len(self.frames))

    @cached_property
    def quality(self) -> Quality:
        """Quality of the displayed boxes."""
        return quality(self.shown, self.frames)

    @cached_property
    def given(self) -> Quality:
        """Quality of the given detector in PyTorch without a time limit, with its whole curve."""
        return quality(self.recordings["eager"].found, self.frames)

    @cached_property
    def detected(self) -> Quality:
        """Quality of the submission's detector on all frames that were sent to it, lost or not: the accuracy of the network itself."""
        return quality(self.recordings["yours"].found, self.frames[:: self.settings.every])

    @cached_property
    def mean_ap_share(self) -> Interval:
        """Interval of the submission's mean average precision divided by the given detector's."""
        share = self.quality.mean_ap / self.given.mean_ap
        return _interval(share, [yours.mean_ap / given.mean_ap for yours, given in self._qualities])

    @cached_property
    def false_share(self) -> Interval:
        """Interval of the submission's share of false boxes divided by the given detector's: videos differ."""
        share = self.quality.false_share / self.given.false_share
        return _interval(share, [yours.false_share / given.false_share for yours, given in self._qualities])

    @property
    def _slow_ms(self) -> float:
        return min(self.frame_ms(name) for name in SLOW)

    def _replay(self, name: str, settings: Settings, call_ms: np.ndarray) -> Replay:
        return replay(call_ms, len(self.recordings[name].found), settings, self.period_ms)

    @cached_property
    def _replays(self) -> list[Replay]:
        """Replays with other orders of the measured calls, in blocks, because a machine is often slow for several calls in a row."""
        call_ms = self.recordings["yours"].call_ms
        picks = _blocks(len(call_ms), math.isqrt(len(call_ms)))
        return [self._replay("yours", self.settings, call_ms[pick]) for pick in picks]

    @cached_property
    def _qualities(self) -> list[tuple[Quality, Quality]]:
        """The submission's and the given detector's quality on other videos, made of stretches of this one."""
        picks = _blocks(len(self.frames), math.isqrt(len(self.frames)))
        both = (resampled(found, self.frames, picks) for found in (self.shown, self.recordings["eager"].found))
        return list(zip(*both, strict=True))

    def figures(self) -> dict[str, float]:
        """The figures of the verdict, for reports; times in milliseconds."""
        return {
            "mean_ap": self.quality.mean_ap,
            "mean_ap_given": self.given.mean_ap,
            "false_share": self.quality.false_share,
            "p99_ms": self.replay.p99_ms,
            "period_ms": self.period_ms,
            "lost_share": self.replay.lost_share,
            **{f"{name}_ms": self.frame_ms(name) for name in self.recordings},
        }


def _blocks(n: int, block: int) -> list[np.ndarray]:
    """Numbers of a moving-block bootstrap, see `course_lib.benchmark.speedup`; always the same for the same `n`."""
    starts = np.random.default_rng(0).integers(0, n, size=(_RESAMPLES, math.ceil(n / block)))
    return [((row[:, None] + np.arange(block)) % n).ravel()[:n] for row in starts]


def _interval(value: float, drawn: list[float], unit: float = 1.0) -> Interval:
    low, high = np.percentile(drawn, [2.5, 97.5])
    return Interval(unit * value, unit * min(float(low), value), unit * max(float(high), value))
