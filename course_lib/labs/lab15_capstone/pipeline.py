"""The pipeline: frames are prepared, a detector answers in its worker, boxes are read off, and a queue decides which frames are late.

Every call is timed from outside. The queue is computed from measured calls, not in real time.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from course_lib.benchmark.queueing import Answers
from course_lib.errors import EngineError
from course_lib.labs.framework.examination import TimedWorker
from course_lib.labs.lab15_capstone.given import NOTHING, Detections, Settings, detections
from course_lib.models.digit_video import SIDE, Frame, prepared

PASSES, MOST_PASSES = 2, 5  # the fastest of a frame's calls counts, so that no frame pays for a pause of the machine
ANSWER_ONCE = ("eager",)  # slow, and only its median time is used
SLOWEST = 10.0  # times the reference's time: a detector that needs longer is not waited for
_GRACE_MS = 200.0
_NEIGHBORS = 31  # calls of the reference that tell how fast the machine was at that moment


@dataclass(frozen=True)
class Subject:
    """A detector in its worker, with the settings that it is used with."""

    engine: TimedWorker
    settings: Settings

    def answer(self, images: np.ndarray) -> list[Detections]:
        """Boxes for a batch of gray frames, uint8 ``(N, 128, 128)``.

        Raises:
            EngineError: it does not take such images, or its answer does not have a detector's layout.
        """
        name, channels = self._input()
        outputs = self.engine.infer({name: prepared(images, self.settings.size, channels=channels)})
        if len(outputs) != 1:
            raise EngineError(f"the detector has {len(outputs)} outputs, expected one of shape (N, 4 + classes, cells)")
        found = detections(next(iter(outputs.values())), self.settings, scale=SIDE / self.settings.size)
        if len(found) != len(images):
            raise EngineError(f"the detector answers {len(found)} frames of a batch of {len(images)}")
        return found

    def _input(self) -> tuple[str, int]:
        inputs, size = self.engine.worker.inputs, self.settings.size
        if len(inputs) != 1 or inputs[0].dtype != "float32" or len(inputs[0].shape) != 4 or inputs[0].shape[1] not in (1, 3):
            said = ", ".join(f"{info.name[:40]} {info.dtype} {info.shape}" for info in inputs[:3])
            raise EngineError(f"the detector takes {said}, expected one float32 input (N, 1 or 3, {size}, {size})")
        return inputs[0].name, inputs[0].shape[1]

    def calls(self, frames: int) -> list[np.ndarray]:
        """Indices of the frames of each call, ``(batch,)``; the last call repeats its last frame if it is not full."""
        sent = np.arange(0, frames, self.settings.every)
        batch = self.settings.batch
        full = np.append(sent, np.repeat(sent[-1:], -len(sent) % batch))
        return list(full.reshape(-1, batch))


@dataclass(frozen=True)
class Recording:
    """The answers of a detector to a video, and their times.

    Attributes:
        found: boxes for each frame that was sent, in order.
        call_ms: time of each call in milliseconds, including preparation and suppression.
    """

    found: list[Detections]
    call_ms: np.ndarray


def record(
    subjects: Mapping[str, Subject],
    frames: Sequence[Frame],
    decided: Callable[[dict[str, Recording]], bool] = lambda _: True,
) -> dict[str, Recording]:
    """Run all subjects on the video, with interleaved calls.

    Times are corrected to a constant speed of the machine, which the times of ``subjects["reference"]`` show.

    Args:
        subjects: "reference", "yours", and those of `ANSWER_ONCE`.
        decided: function that tells whether the times decide every criterion. Until they do, the video runs again, at most
            `MOST_PASSES` times.

    Raises:
        EngineError: an answer is invalid, or yours take `SLOWEST` times as long as the reference's.
    """
    images = np.stack([frame.image for frame in frames])
    for subject in subjects.values():
        subject.answer(images[subject.calls(len(images))[0]])  # the first call of an engine sets it up
    found: dict[str, list[Detections]] = {}
    times: dict[str, list[np.ndarray]] = {name: [] for name in subjects}
    sent = {name: len(range(0, len(images), subject.settings.every)) for name, subject in subjects.items()}
    for turn in range(MOST_PASSES):
        asked = {name: subject for name, subject in subjects.items() if turn == 0 or name not in ANSWER_ONCE}
        answers, call_ms = _one_pass(asked, images)
        found = found or answers
        pace = _pace(call_ms["reference"])
        for name, taken in call_ms.items():
            times[name].append(taken / np.interp(_moments(len(taken)), _moments(len(pace)), pace))
        recordings = {name: Recording(found[name][: sent[name]], np.min(times[name], axis=0)) for name in subjects}
        if turn + 1 >= PASSES and decided(recordings):
            break
    return recordings


def _one_pass(subjects: Mapping[str, Subject], images: np.ndarray) -> tuple[dict[str, list[Detections]], dict[str, np.ndarray]]:
    found: dict[str, list[Detections]] = {name: [] for name in subjects}
    call_ms: dict[str, list[float]] = {name: [] for name in subjects}
    spent_ms = dict.fromkeys(subjects, 0.0)
    for name, call in _interleaved({name: subject.calls(len(images)) for name, subject in subjects.items()}):
        started = time.perf_counter()
        found[name] += subjects[name].answer(images[call])
        call_ms[name].append(1e3 * (time.perf_counter() - started))
        spent_ms[name] += call_ms[name][-1]
        if spent_ms["yours"] > SLOWEST * (_GRACE_MS + spent_ms["reference"]):
            yours, reference = (np.median(call_ms[who] or [0.0]) for who in ("yours", "reference"))
            raise EngineError(
                f"a call takes {yours:.0f} ms, the reference's {reference:.1f} ms: that cannot keep up with the camera"
            )
    return found, {name: np.array(taken) for name, taken in call_ms.items()}


def _interleaved(calls: Mapping[str, Sequence[np.ndarray]]) -> Iterator[tuple[str, np.ndarray]]:
    """All calls in the order of the video."""
    order = sorted((moment, name, k) for name, own in calls.items() for k, moment in enumerate(_moments(len(own))))
    for _, name, k in order:
        yield name, calls[name][k]


def _moments(n: int) -> np.ndarray:
    """When each of `n` calls takes place, as a part of the video."""
    return (np.arange(n) + 0.5) / n


def _pace(call_ms: np.ndarray) -> np.ndarray:
    """The slowdown of the machine at each call of the reference, as a running median."""
    width = min(_NEIGHBORS, len(call_ms))
    padded = np.pad(call_ms, (width // 2, (width - 1) // 2), mode="reflect" if width > 1 else "edge")
    return np.median(np.lib.stride_tricks.sliding_window_view(padded, width), axis=1) / np.median(call_ms)


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
