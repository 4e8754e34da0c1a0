"""Latency of each frame when frames arrive at a fixed rate, computed from measured calls instead of in real time."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from course_lib.benchmark.queueing import Answers
from course_lib.labs.lab15_capstone.decoding import NOTHING, Detections
from course_lib.labs.lab15_capstone.settings import Settings


@dataclass(frozen=True)
class Replay(Answers):
    """What happened to the frames that were sent to the detector.

    Attributes:
        period_ms: time from one frame of the source to the next.
        every: one of this many frames was sent.
    """

    period_ms: float
    every: int

    def shown(self, found: Sequence[Detections], frames: int) -> list[Detections]:
        """The boxes on each of the source's frames: a skipped frame shows those of the one before, a lost frame none."""
        lost = np.isnan(self.latency_ms)
        return [NOTHING if lost[index // self.every] else found[index // self.every] for index in range(frames)]


def replay(call_ms: np.ndarray, sent: int, settings: Settings, period_ms: float) -> Replay:
    """Send `sent` frames through a queue to a detector whose k-th call takes ``call_ms[k]``.

    A call begins when the detector is free and a full batch waits. The last call takes the remaining frames.

    Args:
        call_ms: durations, ``(calls,)``; they repeat if there are more calls.
        sent: number of frames.
        period_ms: time from one frame of the source to the next.
    """
    arrivals = np.arange(sent) * period_ms * settings.every
    done = np.full(sent, np.nan)
    lengths = np.zeros(sent, dtype=int)
    queue: deque[int] = deque()
    durations = iter(np.resize(call_ms, sent))
    free_at = 0.0

    def serve(until: float, now: float, at_least: int) -> float:
        """Start the calls that begin no later than `until`; `now` is the last arrival. Return when the detector is free again."""
        free = free_at
        while len(queue) >= at_least and free <= until:
            free = max(free, now) + next(durations)
            for _ in range(min(settings.batch, len(queue))):
                done[queue.popleft()] = free
        return free

    for index, now in enumerate(arrivals):
        free_at = serve(now, arrivals[max(index - 1, 0)], settings.batch)
        queue.append(index)
        free_at = serve(now, now, settings.batch)
        if len(queue) > settings.queue:
            queue.popleft() if settings.drop == "oldest" else queue.pop()
        lengths[index] = len(queue)
    free_at = serve(np.inf, arrivals[-1], 1)
    return Replay(done - arrivals, lengths, period_ms=period_ms, every=settings.every)
