"""A timeline: kernels and copies on the device, calls and ranges on the host, and the idle time of the device."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, get_args

from course_lib._util.html import LEFT, RIGHT, notebook_table
from course_lib.profiling.timelines.intervals import Interval, complement, total, union

Kind = Literal["kernel", "graph", "copy", "memset", "api", "sync", "op", "range"]
DEVICE_KINDS: frozenset[Kind] = frozenset({"kernel", "graph", "copy", "memset"})
_ROWS_IN_HTML = 20


@dataclass(frozen=True)
class Event:
    """One bar of a timeline.

    Attributes:
        name: name of the kernel, call, operator or range from the profiler.
        kind: device work is ``"kernel"``, ``"graph"`` (one launch of a whole CUDA graph, if its kernels were not recorded), ``"copy"``
            or ``"memset"``. On the host, ``"api"`` is a call, ``"sync"`` a call during which the host waits for the device, ``"op"`` an
            operator of a framework, ``"range"`` a range that the program named.
        start_us, duration_us: microseconds; the zero is the reader's.
        row: the stream or the thread, such as ``"stream 7"`` or ``"thread 4242"``.
        bytes_moved: size of a copy or memset in bytes.
        pageable: whether a copy's side on the host is ordinary memory, which the driver must copy again.
        correlation: the number that a call shares with the device work that it started.
    """

    name: str
    kind: Kind
    start_us: float
    duration_us: float
    row: str
    bytes_moved: int | None = None
    pageable: bool = False
    correlation: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise ValueError(f"an event's kind is one of {', '.join(get_args(Kind))}, not {self.kind!r}")
        if not (math.isfinite(self.start_us) and 0 <= self.duration_us < math.inf):
            raise ValueError(f"event {self.name!r} starts at {self.start_us} us and takes {self.duration_us} us: not a time")

    @property
    def end_us(self) -> float:
        """Start plus duration, in microseconds."""
        return self.start_us + self.duration_us

    @property
    def on_device(self) -> bool:
        """Whether the device worked on this."""
        return self.kind in DEVICE_KINDS


@dataclass(frozen=True)
class SummaryRow:
    """All events of one name and kind; times in microseconds."""

    name: str
    kind: Kind
    count: int
    total_us: float

    @property
    def mean_us(self) -> float:
        """Mean duration of one event, in microseconds."""
        return self.total_us / self.count


@dataclass(frozen=True)
class Timeline:
    """Events in the order of their start, and the observed time.

    Attributes:
        events: any order; they are sorted by start, longer ones first.
        bounds: start and end of the observed time. None means from the first to the last device work, so that start-up and shutdown
            of the program do not count as idle time. Without device work, it is from the first to the last event.
        lacks: what the recording misses if it has no device work although it should, with the remedy; otherwise ``""``.
    """

    events: tuple[Event, ...]
    bounds: Interval | None = None
    lacks: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if self.bounds and self.bounds[1] < self.bounds[0]:
            raise ValueError(f"a timeline cannot end ({self.bounds[1]} us) before it starts ({self.bounds[0]} us)")
        object.__setattr__(self, "events", tuple(sorted(self.events, key=lambda event: (event.start_us, -event.duration_us))))

    @cached_property
    def _extent(self) -> Interval:
        shown = self.device_events or self.events
        return self.bounds or (min((e.start_us for e in shown), default=0.0), max((e.end_us for e in shown), default=0.0))

    @property
    def start_us(self) -> float:
        """Start of the bounds, in microseconds."""
        return self._extent[0]

    @property
    def end_us(self) -> float:
        """End of the bounds, in microseconds."""
        return self._extent[1]

    @property
    def span_us(self) -> float:
        """Length of the observed time. Busy time and gaps add up to it."""
        return self.end_us - self.start_us

    @cached_property
    def device_events(self) -> tuple[Event, ...]:
        """Kernels, launches of graphs, copies and memsets."""
        return tuple(event for event in self.events if event.on_device)

    @cached_property
    def kernels(self) -> tuple[Event, ...]:
        """Events of the kind ``"kernel"``, in the order of their start."""
        return tuple(event for event in self.events if event.kind == "kernel")

    @cached_property
    def busy(self) -> tuple[Interval, ...]:
        """Intervals in which at least one stream worked, in order, within the bounds. Several GPUs count as one device."""
        start, end = self._extent
        return tuple(union((max(e.start_us, start), min(e.end_us, end)) for e in self.device_events))

    @property
    def busy_us(self) -> float:
        """Time in which at least one stream worked. Streams that work at the same time count once."""
        return total(self.busy)

    def gaps(self, at_least_us: float = 0.0) -> tuple[Interval, ...]:
        """Intervals of at least `at_least_us` microseconds in which no stream worked, in order."""
        return tuple(gap for gap in complement(self.busy, *self._extent) if gap[1] - gap[0] >= at_least_us)

    def window(self, start_us: float, end_us: float) -> Timeline:
        """The part between two times. Events that overlap it are kept whole; busy time and gaps end at its borders.

        Earlier calls are kept if they started device work in this part.
        """
        inside = [event for event in self.events if event.start_us < end_us and event.end_us > start_us]
        started = {event.correlation for event in inside if event.on_device} - {None}
        earlier = [event for event in self._calls.values() if event.end_us <= start_us and event.correlation in started]
        return Timeline((*earlier, *inside), (start_us, end_us), self.lacks)

    @cached_property
    def _calls(self) -> dict[int, Event]:
        return {event.correlation: event for event in self.events if not event.on_device and event.correlation is not None}

    def call_of(self, work: Event) -> Event | None:
        """The call that started this device work, if the profiler recorded it."""
        return None if work.correlation is None else self._calls.get(work.correlation)

    def host_activity(self, start_us: float, end_us: float) -> str:
        """The main activity of the host in an interval, as the end of "the host ran ...", or ``""`` if it is unknown.

        The thread that started the next device work counts, or every thread if that one is not recorded.
        """
        following = next((event for event in self.device_events if event.start_us >= end_us), None)
        caller = self.call_of(following) if following else None
        host = [event for event in self.events if not event.on_device and (caller is None or event.row == caller.row)]
        most = (end_us - start_us) / 2
        for kinds in ({"api", "sync"}, {"op"}):
            shares: dict[str, float] = defaultdict(float)
            for event in (event for event in host if event.kind in kinds):
                shares[event.name] += max(0.0, min(event.end_us, end_us) - max(event.start_us, start_us))
            name = max(shares, key=shares.__getitem__, default="")
            if name and shares[name] >= most:
                return name
        around = [e for e in host if e.kind == "range" and min(e.end_us, end_us) - max(e.start_us, start_us) >= most]
        if around:
            return f"its own code in {min(around, key=lambda event: event.duration_us).name!r}"
        return "its own code" if host else ""

    def summary(self) -> tuple[SummaryRow, ...]:
        """One row a name and kind, by total time. Durations count in full, also of events that reach over a window's border."""
        durations: dict[tuple[str, Kind], list[float]] = defaultdict(list)
        for event in self.events:
            durations[event.name, event.kind].append(event.duration_us)
        rows = (SummaryRow(*key, len(values), math.fsum(values)) for key, values in durations.items())
        return tuple(sorted(rows, key=lambda row: (-row.total_us, row.name)))

    def headline(self, device: str = "GPU") -> str:
        """The timeline in one line: how busy the device with this name was, and what the host did in the longest gap."""
        if not self.device_events:
            return f"No device work in {time_text(self.span_us)}" + (f": {self.lacks}" if self.lacks else "")
        share = self.busy_us / self.span_us if self.span_us else 1.0
        text = f"{device} busy {100 * share:.0f} % of {time_text(self.span_us)}"
        gaps = self.gaps()
        if not gaps:
            return text
        start, end = max(gaps, key=lambda gap: gap[1] - gap[0])
        activity = self.host_activity(start, end)
        return f"{text}; longest gap {time_text(end - start)}" + (f" while the host ran {activity}" if activity else "")

    def _repr_html_(self) -> str:
        """The summary as a table with short names; a tooltip has the full one."""
        rows = self.summary()
        columns = {"name": LEFT, "kind": LEFT, "count": RIGHT, "total": RIGHT, "mean": RIGHT}
        shown = [
            (
                {"title": row.name},
                (label(row.name, row.kind), row.kind, str(row.count), time_text(row.total_us), time_text(row.mean_us)),
            )
            for row in rows[:_ROWS_IN_HTML]
        ]
        more = f" ({len(rows) - _ROWS_IN_HTML} more names not shown)" if len(rows) > _ROWS_IN_HTML else ""
        return notebook_table(self.headline() + more, columns, shown)


def time_text(duration_us: float) -> str:
    """A duration with three digits and a suitable unit: ``"1.1 ms"``."""
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if duration_us >= 0.9995 * size:
            return f"{_three_digits(duration_us / size)} {unit}"
    return f"{_three_digits(duration_us)} us"


def _three_digits(value: float) -> str:
    return f"{value:.0f}" if value >= 99.95 else f"{value:.3g}"


def label(name: str, kind: Kind) -> str:
    """A name for people: kernels without return type, namespace, template and parameters, ``void a::copy<4>(int)`` -> ``copy``."""
    if kind != "kernel":
        return name
    depth, bare = 0, []
    for character in name:
        depth = max(depth + (character in "<(") - (character in ">)"), 0)
        if depth == 0 and character not in ">)":
            bare.append(character)
    return "".join(bare).removeprefix("void ").rpartition("::")[2].strip() or name
