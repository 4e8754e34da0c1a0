"""When each call of a trace would run on a GPU with fixed costs: one unit for copies each way, and one for runs.

The costs are those of no real device. They make the same trace take the same time on every machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from course_lib.labs.lab09_runtime import network
from course_lib.labs.lab09_runtime.judge.order import DEFAULT
from course_lib.labs.lab09_runtime.judge.recorded import Step
from course_lib.labs.lab09_runtime.requests import fits
from course_lib.labs.lab09_runtime.sandboxed.run_loop import ASKED
from course_lib.profiling import Timeline
from course_lib.profiling.timelines.timeline import Event, Kind

CALL_US = 1.0  # of the host for each call
COPY_US, BYTES_PER_US = 4.0, 1000.0  # a copy: start, and bytes in each microsecond
PAGEABLE = 2.0  # times as long from or to ordinary memory, and the host waits for it
RUN_US, ROW_US = 10.0, 0.6  # a run: start, and each row
SWITCH_US = 2.0  # of a profile
ALLOCATE_US = 50.0  # of memory, a stream, an event, a context, and to give it back
_ROWS = {  # by kind; a switch of the profile is a copy to the device
    "in": "copies to the device",
    "profile": "copies to the device",
    "out": "copies to the host",
    "run": "runs",
    "within": "runs",
}
_ALLOCATES = ("allocate", "free", "pin", "unpin", "stream", "event", "context", "engine")
_WAITS = {"sync_stream": "wait for a stream", "sync_event": "wait for an event", "sync_device": "wait for the device"}


@dataclass(frozen=True)
class Schedule:
    """The times of a trace.

    Attributes:
        events: work on the device, one row for each unit, and the waits of the host.
        time_us: from the first copy or run to the end of the last work or wait, in microseconds.
    """

    events: tuple[Event, ...]
    time_us: float

    @property
    def timeline(self) -> Timeline:
        """The events, for `draw_timeline`."""
        return Timeline(self.events, (0.0, self.time_us))


@dataclass
class _Clock:
    """Times in microseconds, as the steps are read one by one."""

    host: float = 0.0
    streams: dict[int, float] = field(default_factory=lambda: {DEFAULT: 0.0})
    events: dict[int, float] = field(default_factory=dict)
    units: dict[str, float] = field(default_factory=dict)
    drawn: list[Event] = field(default_factory=list)

    def work(self, step: Step) -> None:
        row = _ROWS[step.kind]
        start = max(self.host, self.end_of(step.stream), self.units.get(row, 0.0))
        end = start + _cost(step)
        self.units[row] = self.streams[step.stream] = end
        kind: Kind = "copy" if step.kind in ("in", "out") else "kernel"
        if step.kind != "profile":
            self.drawn.append(Event(_label(step), kind, start, end - start, row))
        if step.kind in ("in", "out") and not step.block:
            self.wait(end, "copy of ordinary memory")

    def wait(self, until: float, name: str) -> None:
        """Let the host wait."""
        if until > self.host:
            self.drawn.append(Event(name, "sync", self.host, until - self.host, "host"))
            self.host = until

    def end_of(self, stream: int) -> float:
        if stream == DEFAULT:
            return max(self.streams.values())
        return max(self.streams.get(stream, 0.0), self.streams[DEFAULT])


def schedule(steps: Iterable[Step]) -> Schedule:
    """The times of a trace. What was set up before the first copy or run costs nothing."""
    clock, began = _Clock(), False
    for step in steps:
        if step.kind == ASKED:
            continue
        began = began or step.kind in ("in", "run", "out")
        if not began:
            continue
        clock.host += ALLOCATE_US if step.kind in _ALLOCATES else CALL_US
        if step.kind in _ROWS:
            clock.work(step)
        elif step.kind == "record":
            clock.events[step.event] = clock.end_of(step.stream)
        elif step.kind == "wait":
            clock.streams[step.stream] = max(clock.end_of(step.stream), clock.events.get(step.event, 0.0))
        elif step.kind in _WAITS:
            clock.wait(_waited(clock, step), _WAITS[step.kind])
    return Schedule(tuple(clock.drawn), max((event.end_us for event in clock.drawn), default=0.0))


def _waited(clock: _Clock, step: Step) -> float:
    if step.kind == "sync_event":
        return clock.events.get(step.event, 0.0)
    return clock.end_of(DEFAULT if step.kind == "sync_device" else step.stream)


def _cost(step: Step) -> float:
    if step.kind == "run":
        return RUN_US + ROW_US * float(step.shapes[network.INPUT][0])
    if step.kind == "profile":
        return SWITCH_US
    moved = COPY_US + step.size / BYTES_PER_US
    return moved if step.kind == "within" or step.block else PAGEABLE * moved


def _label(step: Step) -> str:
    if step.kind == "run":
        return f"{step.shapes[network.INPUT][0]} rows"
    return {"in": "in", "out": "out", "within": "copy"}[step.kind]


def turns(requests: Sequence[np.ndarray], sets: int) -> Schedule:
    """The times if `sets` sets of a stream, a context and buffers take turns, and the host waits for a set before it is used again.

    One set is the serial loop: copy, run, copy, wait.
    """
    steps: list[Step] = []
    profiles = [0] * sets
    waiting: list[int] = []
    for index, request in enumerate(request for request in requests if fits(request)):
        used, rows = index % sets, len(request)
        stream = 1 + used
        if len(waiting) == sets:
            steps.append(Step("sync_stream", {"stream": waiting.pop(0)}))
        profile = next(number for number, (_, _, high) in enumerate(network.PROFILES) if rows <= high)
        if profile != profiles[used]:
            steps.append(Step("profile", {"stream": stream}))
            profiles[used] = profile
        steps += [
            Step("in", {"stream": stream, "size": request.nbytes, "block": 1}),
            Step("run", {"stream": stream, "shapes": {network.INPUT: request.shape}}),
            Step("out", {"stream": stream, "size": 4 * rows * network.SCORES, "block": 1}),
        ]
        waiting.append(stream)
        if sets == 1:
            steps.append(Step("sync_stream", {"stream": waiting.pop()}))
    return schedule([*steps, *(Step("sync_stream", {"stream": stream}) for stream in waiting)])
