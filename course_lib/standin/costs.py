"""When each call of a trace would run on a GPU with fixed costs: one unit for copies each way, and one for runs.

The costs are those of no real device. They make the same trace take the same time on every machine.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import NamedTuple

from course_lib.standin.gpu import DEFAULT_STREAM, Row
from course_lib.standin.trace import named

CALL_US = 1.0  # of the host for each call
COPY_US, BYTES_PER_US = 4.0, 1000.0  # a copy: start, and bytes in each microsecond
PAGEABLE = 2.0  # times as long from or to ordinary memory, and the host waits for it
RUN_US, ROW_US = 10.0, 0.6  # a run: start, and each row
SWITCH_US = 2.0  # of a profile
ALLOCATE_US = 50.0  # of memory, a stream, an event, a context, and to give it back
_UNITS = {  # by kind of row; a switch of the profile is a copy to the device
    "in": "copies to the device",
    "profile": "copies to the device",
    "out": "copies to the host",
    "run": "runs",
    "within": "runs",
}
_ALLOCATES = ("allocate", "free", "pin", "unpin", "stream", "event", "context", "engine")
_WAITS = {"sync_stream": "wait for a stream", "sync_event": "wait for an event", "sync_device": "wait for the device"}


class Interval(NamedTuple):
    """Work on a unit of the device, or a wait of the host. `kind` is ``"copy"``, ``"kernel"`` or ``"sync"``."""

    name: str
    kind: str
    start_us: float
    duration_us: float
    unit: str


@dataclass(frozen=True)
class Schedule:
    """The times of a trace.

    Attributes:
        time_us: from the first copy or run to the end of the last work or wait, in microseconds.
    """

    intervals: tuple[Interval, ...]
    time_us: float


@dataclass
class _Clock:
    """Times in microseconds, as the rows are read one by one."""

    host: float = 0.0
    streams: dict[int, float] = field(default_factory=lambda: {DEFAULT_STREAM: 0.0})
    events: dict[int, float] = field(default_factory=dict)
    units: dict[str, float] = field(default_factory=dict)
    intervals: list[Interval] = field(default_factory=list)

    def work(self, row: SimpleNamespace) -> None:
        unit = _UNITS[row.kind]
        start = max(self.host, self.end_of(row.stream), self.units.get(unit, 0.0))
        end = start + _cost(row)
        self.units[unit] = self.streams[row.stream] = end
        if row.kind != "profile":
            kind = "copy" if row.kind in ("in", "out") else "kernel"
            self.intervals.append(Interval(_name(row), kind, start, end - start, unit))
        if row.kind in ("in", "out") and not row.block:
            self.wait(end, "copy of ordinary memory")

    def wait(self, until: float, name: str) -> None:
        """Let the host wait."""
        if until > self.host:
            self.intervals.append(Interval(name, "sync", self.host, until - self.host, "host"))
            self.host = until

    def end_of(self, stream: int) -> float:
        if stream == DEFAULT_STREAM:
            return max(self.streams.values())
        return max(self.streams.get(stream, 0.0), self.streams[DEFAULT_STREAM])


def schedule(rows: Iterable[Row]) -> Schedule:
    """The times of a trace. What was set up before the first copy or run costs nothing."""
    clock, began = _Clock(), False
    for row in (SimpleNamespace(**named(row)) for row in rows if row[0] != "asked"):
        began = began or row.kind in ("in", "run", "out")
        if not began:
            continue
        clock.host += ALLOCATE_US if row.kind in _ALLOCATES else CALL_US
        if row.kind in _UNITS:
            clock.work(row)
        elif row.kind == "record":
            clock.events[row.event] = clock.end_of(row.stream)
        elif row.kind == "wait":
            clock.streams[row.stream] = max(clock.end_of(row.stream), clock.events.get(row.event, 0.0))
        elif row.kind in _WAITS:
            clock.wait(_waited(clock, row), _WAITS[row.kind])
    ends = (one.start_us + one.duration_us for one in clock.intervals)
    return Schedule(tuple(clock.intervals), max(ends, default=0.0))


def _waited(clock: _Clock, row: SimpleNamespace) -> float:
    if row.kind == "sync_event":
        return clock.events.get(row.event, 0.0)
    return clock.end_of(DEFAULT_STREAM if row.kind == "sync_device" else row.stream)


def _cost(row: SimpleNamespace) -> float:
    if row.kind == "run":
        return RUN_US + ROW_US * _rows(row)
    if row.kind == "profile":
        return SWITCH_US
    copied = COPY_US + row.size / BYTES_PER_US
    return copied if row.kind == "within" or row.block else PAGEABLE * copied


def _rows(row: SimpleNamespace) -> int:
    return max((shape[0] for shape in row.shapes.values() if shape), default=0)


def _name(row: SimpleNamespace) -> str:
    return f"{_rows(row)} rows" if row.kind == "run" else {"in": "in", "out": "out", "within": "copy"}[row.kind]
