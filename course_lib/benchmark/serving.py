"""Measuring a service: throughput of several threads, and frames that wait in a queue for a model, on the real clock."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

import numpy as np

from course_lib.benchmark.queueing import Answers

Call = Callable[[], object]
Full = Literal["drop oldest", "drop newest", "wait"]


def throughputs(setups: Mapping[str, Sequence[Call]], *, seconds: float = 0.3, rounds: int = 5) -> dict[str, float]:
    """Calls per second of each setup, the median of the rounds of `rates`."""
    return {name: float(np.median(found)) for name, found in rates(setups, seconds=seconds, rounds=rounds).items()}


def rates(setups: Mapping[str, Sequence[Call]], *, seconds: float = 0.3, rounds: int = 5) -> dict[str, np.ndarray]:
    """Calls per second of each setup in each round, shape ``(rounds,)``. Each call of a setup has its own thread, which repeats it.

    The setups take turns, so a busy moment of the machine affects all of them.

    Raises:
        Exception: what a call raised.
    """
    found: dict[str, list[float]] = {name: [] for name in setups}
    for _ in range(rounds):
        for name, calls in setups.items():
            found[name].append(_calls_per_s(calls, seconds))
    return {name: np.array(values) for name, values in found.items()}


def _calls_per_s(calls: Sequence[Call], seconds: float) -> float:
    """A call that still runs when the time is over is finished and counted, with its time."""
    began = time.perf_counter()

    def repeat(call: Call) -> int:
        count = 0
        while count == 0 or time.perf_counter() < began + seconds:  # on a busy machine the thread may begin late
            call()
            count += 1
        return count

    with ThreadPoolExecutor(len(calls)) as threads:
        total = sum(threads.map(repeat, calls))
    return total / (time.perf_counter() - began)


def resident_mib() -> float:
    """Resident memory of this process in MiB."""
    import psutil

    return float(psutil.Process().memory_info().rss / 2**20)


@dataclass(frozen=True)
class Served(Answers):
    """What happened to the frames of `serve`.

    Attributes:
        offered_s: arrival time of each frame, in seconds after the first.
    """

    offered_s: np.ndarray


def serve(
    call: Callable[[int], object], frames: int, period_ms: float, *, room: int | None = None, full: Full = "drop oldest"
) -> Served:
    """Offer frames at a fixed rate to one thread that answers them one after the other.

    Args:
        call: answers the frame with this number; it runs in the other thread.
        frames: number of frames.
        period_ms: time from one frame to the next. With ``full="wait"`` a full queue holds the source back, and later frames come later.
        room: number of frames that may wait; None means no limit.
        full: what happens to a frame when no room is left.

    Raises:
        ValueError: a queue without room.
        Exception: what `call` raised.
    """
    if room is not None and room < 1:
        raise ValueError(f"a queue needs room for at least one frame, got {room}")
    line = _Line(frames, room, full)
    with ThreadPoolExecutor(1) as worker:
        answered = worker.submit(line.work, call)
        due = time.perf_counter()
        for index in range(frames):
            time.sleep(max(0.0, due - time.perf_counter()))
            line.offer(index)
            due = max(due, time.perf_counter() if full == "wait" else due) + period_ms / 1e3
        line.close()
        answered.result()
    return Served(1e3 * (line.answered - line.offered), line.waiting, offered_s=line.offered - line.offered[0])


class _Line:
    """A queue with a limit between the source and the thread that answers."""

    def __init__(self, frames: int, room: int | None, full: Full) -> None:
        self.offered, self.answered = np.zeros(frames), np.full(frames, np.nan)
        self.waiting = np.zeros(frames, dtype=int)
        self._room, self._full = room if room is not None else frames, full
        self._queue: deque[int] = deque()
        self._changed = threading.Condition()
        self._closed = False

    def offer(self, index: int) -> None:
        with self._changed:
            self.offered[index] = time.perf_counter()
            if self._full == "wait":
                self._changed.wait_for(lambda: len(self._queue) < self._room or self._closed)
            self._queue.append(index)
            if len(self._queue) > self._room:
                self._queue.popleft() if self._full == "drop oldest" else self._queue.pop()
            self.waiting[index] = len(self._queue)
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def work(self, call: Callable[[int], object]) -> None:
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._queue or self._closed)
                    if not self._queue:
                        return
                    index = self._queue.popleft()
                    self._changed.notify_all()
                call(index)
                self.answered[index] = time.perf_counter()
        finally:
            self.close()  # a source that waits for room must not wait for a thread that has failed
