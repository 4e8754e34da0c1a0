"""Which work on a device is certain to have ended before other work begins: streams, events and waits of the host.

Every piece of work has a clock: by stream, the number of the last piece that ends before it begins (a vector clock).
"""

from __future__ import annotations

from dataclasses import dataclass

from course_lib.labs.lab09_runtime.judge.recorded import Step

DEFAULT = 0  # the default stream: it waits for all others, and all others wait for it
Clock = dict[int, int]


@dataclass(frozen=True)
class Work:
    """A piece of work: its stream, its number there, and what ends before it begins."""

    stream: int
    number: int
    clock: Clock

    def follows(self, earlier: Work) -> bool:
        """Whether the earlier work is certain to have ended when this begins."""
        return self.clock.get(earlier.stream, 0) >= earlier.number


class Order:
    """The order that the steps of a trace establish, read one by one."""

    def __init__(self) -> None:
        self._host: Clock = {}
        self._streams: dict[int, Clock] = {DEFAULT: {}}
        self._events: dict[int, Clock] = {}
        self._counts: dict[int, int] = {}

    def enqueued(self, stream: int) -> Work:
        """The next piece of work of a stream."""
        number = self._counts[stream] = self._counts.get(stream, 0) + 1
        before = _joined(self._host, self._at_end_of(stream))
        self._streams[stream] = _joined(before, {stream: number})
        return Work(stream, number, before)

    def ended(self, work: Work) -> bool:
        """Whether the host knows that this work has ended."""
        return self._host.get(work.stream, 0) >= work.number

    def read(self, step: Step) -> None:
        """Take in a step that establishes order: an event, or a wait."""
        if step.kind == "record":
            self._events[step.event] = self._at_end_of(step.stream)
        elif step.kind == "wait":
            self._streams[step.stream] = _joined(self._at_end_of(step.stream), self._events.get(step.event, {}))
        elif step.kind == "sync_event":
            self._host = _joined(self._host, self._events.get(step.event, {}))
        elif step.kind == "sync_stream":
            waited = self._streams.get(step.stream, {}) if step.stream != DEFAULT else self._at_end_of(DEFAULT)
            self._host = _joined(self._host, waited)
        elif step.kind == "sync_device":
            self._host = _joined(self._host, *self._streams.values())

    def _at_end_of(self, stream: int) -> Clock:
        """What has ended when a stream reaches the end of what it has now."""
        if stream == DEFAULT:
            return _joined(*self._streams.values())
        return _joined(self._streams[DEFAULT], self._streams.get(stream, {}))


def _joined(*clocks: Clock) -> Clock:
    found: Clock = {}
    for clock in clocks:
        for stream, number in clock.items():
            found[stream] = max(found.get(stream, 0), number)
    return found
