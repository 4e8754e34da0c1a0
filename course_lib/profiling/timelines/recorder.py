"""A timeline of a running Python program: the ranges that it names, and when its engine worked."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from course_lib.profiling.timelines.ranges import nvtx_range
from course_lib.profiling.timelines.timeline import Event, Kind, Timeline


class Recorder:
    """Keeps ranges with two readings of the clock each. Any thread may record; each gets its own row.

    Args:
        device: the row of the work that `work` records, such as ``"engine"``.
    """

    def __init__(self, device: str = "engine") -> None:
        self._device = device
        self._zero = time.perf_counter()
        self._events: list[Event] = []

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        """A range on the row of the calling thread, and an NVTX range for Nsight Systems; see `nvtx_range`."""
        with nvtx_range(name), self._event(name, "range", threading.current_thread().name):
            yield

    @contextmanager
    def work(self, name: str) -> Iterator[None]:
        """Work of the engine, which counts as the device's. On a CPU it is done at the end of the block."""
        with self._event(name, "kernel", self._device):
            yield

    @contextmanager
    def _event(self, name: str, kind: Kind, row: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            ended = time.perf_counter()
            self._events.append(Event(name, kind, 1e6 * (started - self._zero), 1e6 * (ended - started), row))

    def timeline(self) -> Timeline:
        """All that was recorded, from the first event to the last, in microseconds since the recorder was made."""
        events = tuple(self._events)
        bounds = (min(e.start_us for e in events), max(e.end_us for e in events)) if events else None
        return Timeline(events, bounds)
