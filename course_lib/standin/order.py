"""Mistakes in the order of a program's calls, found in the trace of a device: what is not certain to wait for what.

Every piece of work has a clock: by stream, the number of the last piece that ends before it begins (a vector clock). Two accesses to
the same bytes race if one of them writes and neither is certain to have ended before the other begins, whatever the timing was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace

from course_lib.standin.gpu import DEFAULT_STREAM, Row
from course_lib.standin.trace import named

Clock = dict[int, int]

MISTAKES: Mapping[str, str] = {
    "context_shared": "A context runs twice at once: {later} may begin before the previous run has ended",
    "reused_early": "A buffer is used again too early: {later} overwrites bytes that {earlier} may still use",
    "wait_missing": "A wait is missing: {later} reads bytes that {earlier} may not have written yet",
    "host_overwritten": "Pinned memory was overwritten while {later} was in flight, so the GPU copied other bytes",
    "never_read": "{later} overwrites pinned bytes of an earlier copy that the host had not waited for",
    "freed_in_flight": "Device memory was freed while {earlier} may still use it",
    "freed_memory": "The device was lost: {later} touches memory that was freed before",
    "too_small": "The device was lost: {later} touches more bytes than the allocation has",
    "not_device_memory": "The device was lost: {later} touches an address that is not device memory",
    "profile_in_flight": "{later} may come before an earlier run of the same context has ended",
    "profile_elsewhere": "The profile was switched on another stream, and {later} does not wait for the switch",
    "unwritten": "{later} reads bytes that no copy and no run has written",
    "still_running": "When the program ended, the host had not waited for {earlier}",
}
"""What each kind of mistake means. `Mistake.earlier` and `Mistake.later` name the work."""

TAKEN = {  # what is taken and given back, by the kinds of both rows
    "device memory": ("allocate", "free"),
    "pinned host memory": ("pin", "unpin"),
    "streams": ("stream", "stream_gone"),
    "events": ("event", "event_gone"),
    "engines": ("engine", "engine_gone"),
    "contexts": ("context", "context_gone"),
}


@dataclass(frozen=True)
class Mistake:
    """A mistake of a kind in `MISTAKES`, with the names of the work that it concerns."""

    kind: str
    earlier: str = ""
    later: str = ""

    def __str__(self) -> str:
        sentence = MISTAKES[self.kind].format(earlier=self.earlier, later=self.later)
        return sentence[:1].upper() + sentence[1:]


@dataclass
class Findings:
    """What a trace shows.

    Attributes:
        mistakes: in the order of the calls.
        left: how many of each kind in `TAKEN` remain at the end.
        runs, rows: how many runs there were, and the first dimension of their inputs, summed.
        home: bytes that copies brought to the host.
        in_flight: pieces of work that the host had not waited for when the program last asked for an input.
    """

    mistakes: list[Mistake] = field(default_factory=list)
    left: dict[str, int] = field(default_factory=dict)
    runs: int = 0
    rows: int = 0
    home: int = 0
    in_flight: int = 0

    @property
    def first_mistakes(self) -> list[Mistake]:
        """The first mistake of each kind, in the order of `MISTAKES`: causes before what often follows from them."""
        first = {mistake.kind: mistake for mistake in reversed(self.mistakes)}
        return [first[kind] for kind in MISTAKES if kind in first]


def examine(rows: Iterable[Row], names: Mapping[bytes, str]) -> Findings:
    """Examine a trace.

    Args:
        names: of inputs, by their bytes, for the names of copies and runs.
    """
    rows, examination = list(rows), _Examination(names)
    for row in rows:
        if not examination.lost:  # what follows on a lost device does not mean anything
            examination.read(SimpleNamespace(**named(row)))
    counts = Counter(row[0] for row in rows)
    examination.findings.left = {name: counts[taken] - counts[given] for name, (taken, given) in TAKEN.items()}
    examination.end()
    return examination.findings


@dataclass(frozen=True)
class Work:
    """A piece of work: its stream, its number there, what ends before it begins, and its name."""

    stream: int
    number: int
    before: Clock
    name: str = ""

    def follows(self, earlier: Work) -> bool:
        """Whether the earlier work is certain to have ended when this begins."""
        return self.before.get(earlier.stream, 0) >= earlier.number


class Order:
    """The order that the rows of a trace establish, read one by one."""

    def __init__(self) -> None:
        self._host: Clock = {}
        self._streams: dict[int, Clock] = {DEFAULT_STREAM: {}}
        self._events: dict[int, Clock] = {}
        self._counts: Counter[int] = Counter()

    def enqueued(self, stream: int, name: str = "") -> Work:
        """The next piece of work of a stream."""
        self._counts[stream] += 1
        before = _joined(self._host, self._at_end_of(stream))
        self._streams[stream] = _joined(before, {stream: self._counts[stream]})
        return Work(stream, self._counts[stream], before, name)

    def ended(self, work: Work) -> bool:
        """Whether the host knows that this work has ended."""
        return self._host.get(work.stream, 0) >= work.number

    def read(self, row: SimpleNamespace) -> None:
        """Take in a row that establishes order: an event, or a wait."""
        if row.kind == "record":
            self._events[row.event] = self._at_end_of(row.stream)
        elif row.kind == "wait":
            self._streams[row.stream] = _joined(self._at_end_of(row.stream), self._events.get(row.event, {}))
        elif row.kind == "sync_event":
            self._host = _joined(self._host, self._events.get(row.event, {}))
        elif row.kind == "sync_stream":
            default = row.stream == DEFAULT_STREAM
            self._host = _joined(self._host, self._at_end_of(row.stream) if default else self._streams.get(row.stream, {}))
        elif row.kind == "sync_device":
            self._host = _joined(self._host, *self._streams.values())

    def _at_end_of(self, stream: int) -> Clock:
        """What has ended when a stream reaches the end of what it has now. The default stream waits for all, and all wait for it."""
        if stream == DEFAULT_STREAM:
            return _joined(*self._streams.values())
        return _joined(self._streams[DEFAULT_STREAM], self._streams.get(stream, {}))


def _joined(*clocks: Clock) -> Clock:
    joined: Clock = {}
    for clock in clocks:
        for stream, number in clock.items():
            joined[stream] = max(joined.get(stream, 0), number)
    return joined


@dataclass(frozen=True)
class _Access:
    """Work uses bytes ``begin`` to ``end`` of a block."""

    begin: int
    end: int
    writes: bool
    work: Work

    def conflicts(self, other: _Access) -> bool:
        return (self.writes or other.writes) and self.begin < other.end and other.begin < self.end

    def replaces(self, old: _Access) -> bool:
        """Whether all later work that races with `old` also races with this, so that `old` need not be kept."""
        return self.writes and self.begin <= old.begin and old.end <= self.end and self.work.follows(old.work)


@dataclass
class _Block:
    """Memory that was allocated at once, on the device or page-locked on the host."""

    size: int
    accesses: list[_Access] = field(default_factory=list)
    written: bytearray = field(default_factory=bytearray)
    names: dict[int, str] = field(default_factory=dict)  # of inputs, by the offset at which they begin

    def __post_init__(self) -> None:
        self.written = bytearray(self.size)

    def use(self, new: _Access) -> list[_Access]:
        """Note an access, and return the earlier ones that it conflicts with and does not follow."""
        races = [old for old in self.accesses if old.conflicts(new) and not new.work.follows(old.work)]
        self.accesses = [old for old in self.accesses if not new.replaces(old)] + [new]
        if new.writes:
            self.written[new.begin : new.end] = b"\1" * (new.end - new.begin)
        return races


@dataclass
class _Context:
    profile_switch: Work | None = None
    runs: list[Work] = field(default_factory=list)


class _Examination:
    def __init__(self, names: Mapping[bytes, str]) -> None:
        self.findings, self.lost = Findings(), False
        self._names, self._order = names, Order()
        self._memory: dict[int, _Block] = {}
        self._freed: dict[int, int] = {}  # sizes by address
        self._pinned: dict[int, _Block] = {}
        self._contexts: dict[int, _Context] = {}
        self._streams: dict[int, str] = {DEFAULT_STREAM: "the default stream"}
        self._works: list[Work] = []

    def read(self, row: SimpleNamespace) -> None:
        """Take in the next row."""
        if method := getattr(self, f"_{row.kind}", None):
            method(row)
        else:
            self._order.read(row)

    def end(self) -> None:
        """The program has ended."""
        if running := self._running():
            others = f", and {len(running) - 1} more" if len(running) > 1 else ""
            self._mistake("still_running", earlier=f"{running[0].name}{others}")

    # ---- what is taken and given back

    def _allocate(self, row: SimpleNamespace) -> None:
        self._memory[row.address] = _Block(row.size)

    def _free(self, row: SimpleNamespace) -> None:
        block = self._memory.pop(row.address)
        self._freed[row.address] = block.size
        if using := [access.work for access in block.accesses if not self._order.ended(access.work)]:
            self._mistake("freed_in_flight", earlier=using[-1].name)

    def _pin(self, row: SimpleNamespace) -> None:
        self._pinned[row.block] = _Block(row.size)

    def _stream(self, row: SimpleNamespace) -> None:
        self._streams[row.stream] = f"stream {len(self._streams)}"

    def _context(self, row: SimpleNamespace) -> None:
        self._contexts[row.context] = _Context()

    # ---- the program

    def _asked(self, row: SimpleNamespace) -> None:
        self.findings.in_flight = len(self._running())

    def _lost(self, row: SimpleNamespace) -> None:
        self._lose()

    # ---- work

    def _in(self, row: SimpleNamespace) -> None:
        name = self._names.get(row.data, "rows")
        work = self._enqueued(row, f"the copy of {name} to the device")
        self._use_host(row, work, writes=False)
        if row.changed:
            self._mistake("host_overwritten", later=work.name)
        if used := self._use(row.address, row.size, work, writes=True):
            block, offset = used
            block.names[offset] = name

    def _out(self, row: SimpleNamespace) -> None:
        work = self._enqueued(row, "the copy to the host")
        self._use(row.address, row.size, work, writes=False)
        self._use_host(row, work, writes=True)
        self.findings.home += row.size

    def _within(self, row: SimpleNamespace) -> None:
        work = self._enqueued(row, "the copy on the device")
        if source := self._use(row.source, row.size, work, writes=False):
            name = source[0].names.get(source[1])
            if (target := self._use(row.target, row.size, work, writes=True)) and name:
                target[0].names[target[1]] = name

    def _profile(self, row: SimpleNamespace) -> None:
        context, work = self._contexts[row.context], self._enqueued(row, f"the switch to profile {row.index}")
        if not all(work.follows(run) for run in context.runs):
            self._mistake("profile_in_flight", later=work.name)
        context.profile_switch = work

    def _run(self, row: SimpleNamespace) -> None:
        context = self._contexts[row.context]
        work = self._enqueued(row, f"the run of {self._name_at(*min(row.reads.values(), default=(0, 0)))}")
        if not all(work.follows(run) for run in context.runs):
            self._mistake("context_shared", later=work.name)
        if context.profile_switch and not work.follows(context.profile_switch):
            self._mistake("profile_elsewhere", later=work.name)
        context.runs = [run for run in context.runs if not work.follows(run)] + [work]
        self.findings.runs += 1
        self.findings.rows += min((shape[0] for shape in row.shapes.values() if shape), default=0)
        for address, size in row.reads.values():
            used = self._use(address, size, work, writes=False)
            if used and 0 in used[0].written[used[1] : used[1] + size]:
                self._mistake("unwritten", later=work.name)
        for address, size in row.writes.values():
            self._use(address, size, work, writes=True)

    def _enqueued(self, row: SimpleNamespace, name: str) -> Work:
        work = self._order.enqueued(row.stream, f"{name} on {self._streams[row.stream]}")
        self._works.append(work)
        return work

    def _running(self) -> list[Work]:
        """Work that the host has not waited for."""
        self._works = [work for work in self._works if not self._order.ended(work)]
        return self._works

    def _use(self, address: int, size: int, work: Work, *, writes: bool) -> tuple[_Block, int] | None:
        """Note an access to device memory, and return the block and the offset; None if the device is lost by it."""
        start = next((at for at, block in self._memory.items() if at <= address < at + block.size), None)
        if start is not None and address + size <= start + self._memory[start].size:
            block, offset = self._memory[start], address - start
            self._races(block, _Access(offset, offset + size, writes, work))
            return block, offset
        freed = any(at <= address < at + taken for at, taken in self._freed.items())
        kind = "too_small" if start is not None else "freed_memory" if freed else "not_device_memory"
        self._mistake(kind, later=work.name)
        self._lose()
        return None

    def _use_host(self, row: SimpleNamespace, work: Work, *, writes: bool) -> None:
        """Note an access to page-locked memory. Ordinary memory is copied before the call returns."""
        if not row.block:
            return
        block, access = self._pinned[row.block], _Access(row.offset, row.offset + row.size, writes, work)
        # The host can read rows only between the end of a copy home and the call of the next one to the same bytes.
        unread = writes and any(
            old.writes and old.conflicts(access) and not self._order.ended(old.work) for old in block.accesses
        )
        if not self._races(block, access) and unread:
            self._mistake("never_read", later=work.name)

    def _races(self, block: _Block, access: _Access) -> bool:
        if races := block.use(access):
            kind = "wait_missing" if races[-1].writes and not access.writes else "reused_early"
            self._mistake(kind, races[-1].work.name, access.work.name)
        return bool(races)

    def _lose(self) -> None:
        self.lost, self._works = True, []

    def _mistake(self, kind: str, earlier: str = "", later: str = "") -> None:
        if not self.lost:
            self.findings.mistakes.append(Mistake(kind, earlier, later))

    def _name_at(self, address: int, size: int) -> str:
        """What lies at an address of device memory."""
        return next((block.names[address - at] for at, block in self._memory.items() if address - at in block.names), "rows")
