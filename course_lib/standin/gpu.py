"""A GPU that exists on the host: memory with bounds, streams that run late, stream capture.

Work on a stream waits in a queue until someone synchronizes with it, so code that forgets to synchronize sees what it would see
on a GPU that is busy. Fresh memory is full of 0xFF: NaN as floating point, -1 as integers. Addresses are never used twice.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

GLOBAL, THREAD_LOCAL, RELAXED = 0, 1, 2  # CUstreamCaptureMode
DEFAULT_STREAM = 0
_POISON = 0xFF
_ALIGNMENT = 512
_CAPTURING = "operation not permitted when stream is capturing"
_INVALIDATED = "operation failed due to a previous error during capture"


Row = list[Any]  # of a trace


def when_gone(thing: object, note: Callable[..., object], *arguments: Any) -> None:
    """Note it once nothing refers to `thing` any more. A finalizer that someone calls before that notes nothing, then or later."""
    alive = weakref.ref(thing)
    weakref.finalize(thing, lambda: None if alive() is not None else note(*arguments))


class Error(Exception):
    """As `pycuda.driver.Error`."""


class LogicError(Error):
    """As `pycuda.driver.LogicError`: a call that the driver rejects, or any call after the device was lost."""


class OutOfMemory(Error):
    """As `pycuda.driver.MemoryError`."""


class IllegalAccess(Exception):
    """Work on a stream touches memory that is not the device's. The device is lost from then on, as a real one is."""


@dataclass
class Capture:
    """What was enqueued on a stream while it was captured."""

    thread: int
    mode: int
    work: list[Callable[[], None]] = field(default_factory=list)
    broken: bool = False

    def forbids_unsafe_calls(self) -> bool:
        """Whether a call that may synchronize, made by this thread, spoils this capture."""
        return self.mode == GLOBAL or (self.mode == THREAD_LOCAL and self.thread == threading.get_ident())


class Gpu:
    """One device with one context.

    Args:
        capability: compute capability.
        total_memory: in bytes; what is allocated on it is counted, and rejected beyond it.
        trace: what crosses the boundary between host and device is appended here; see `course_lib.standin.trace`.
    """

    def __init__(
        self, capability: tuple[int, int] = (9, 0), total_memory: int = 80 << 30, trace: list[Row] | None = None
    ) -> None:
        self.capability, self.total_memory, self._trace = capability, total_memory, trace
        self.lost = ""
        self._memory: dict[int, np.ndarray] = {}
        self._reserved = 0
        self._next_address = 0x7E00_0000_0000  # no host pointer looks like this
        self._handles = itertools.count(0x5000_0000, 0x40)
        self._queues: dict[int, deque[Callable[[], None]]] = {DEFAULT_STREAM: deque()}
        self._captures: dict[int, Capture] = {}
        self._lock = threading.RLock()

    def note(self, kind: str, *values: Any) -> Row:
        """Append a row to the trace. A later change of the row changes the trace."""
        return self.note_row([kind, *values])

    def note_row(self, row: Row) -> Row:
        """`note`, for a row that is known to other work."""
        if self._trace is not None:
            self._trace.append(row)
        return row

    # ---- memory

    def allocate(self, size: int) -> int:
        """The address of fresh memory."""
        self._reject_unsafe("cuMemAlloc")
        if size <= 0:
            raise LogicError("cuMemAlloc failed: invalid argument")
        self.reserve(size)
        with self._lock:
            address = self._next_address
            self._next_address += (size // _ALIGNMENT + 2) * _ALIGNMENT
            self._memory[address] = np.full(size, _POISON, np.uint8)
        self.note("allocate", address, size)
        return address

    def free(self, address: int) -> None:
        """Take the memory away: whatever touches it from now on, work in a queue too, is an illegal access."""
        memory = self._memory.pop(address, None)
        if memory is None:
            raise LogicError("cuMemFree failed: invalid argument")
        self.release(memory.nbytes)
        self.note("free", address)

    def reserve(self, size: int) -> None:
        """Count memory that something on the device takes for itself, such as an engine for its weights."""
        with self._lock:
            if self._reserved + size > self.total_memory:
                raise OutOfMemory("cuMemAlloc failed: out of memory")
            self._reserved += size

    def release(self, size: int) -> None:
        """Give back what was reserved."""
        with self._lock:
            self._reserved -= size

    @property
    def free_memory(self) -> int:
        """Bytes that are left."""
        return self.total_memory - self._reserved

    def view(self, address: int, size: int) -> np.ndarray:
        """Bytes of device memory.

        Raises:
            IllegalAccess: not all of them lie in one allocation.
        """
        for start, memory in list(self._memory.items()):
            if start <= address and address + size <= start + memory.nbytes:
                return memory[address - start : address - start + size]
        raise IllegalAccess(f"{size} bytes at {address:#x}")

    def owns(self, address: int, size: int) -> bool:
        """Whether these bytes are device memory."""
        try:
            self.view(address, size)
        except IllegalAccess:
            return False
        return True

    # ---- streams

    def new_handle(self) -> int:
        """A number that no other stream, event or graph of this device has."""
        return next(self._handles)

    def create_stream(self) -> int:
        """The handle of a new stream."""
        handle = self.new_handle()
        self._queues[handle] = deque()
        self.note("stream", handle)
        return handle

    def enqueue(self, stream: int, work: Callable[[], None], call: str) -> None:
        """Let a stream do something when it comes to it, or record it if the stream is captured."""
        self.check(call)
        if stream not in self._queues:
            raise LogicError(f"{call} failed: invalid resource handle")
        if capture := self._captures.get(stream):
            if capture.broken:
                raise LogicError(f"{call} failed: {_INVALIDATED}")
            capture.work.append(work)
            return
        if stream == DEFAULT_STREAM and self._captures:
            for other in self._captures.values():
                other.broken = True
            raise LogicError(f"{call} failed: operation would make the legacy stream depend on a capturing blocking stream")
        self._queues[stream].append(work)

    def synchronize(self, stream: int, call: str, until: Callable[[], bool] = lambda: False) -> None:
        """Do a stream's work, all of it or until a condition holds. The default stream waits for all others."""
        self.check(call)
        if stream not in self._queues:
            raise LogicError(f"{call} failed: invalid resource handle")
        if capture := self._captures.get(stream):
            capture.broken = True
            raise LogicError(f"{call} failed: {_CAPTURING}")
        self._reject_unsafe(call, only=stream == DEFAULT_STREAM)
        with self._lock:
            for one in [*self._queues, DEFAULT_STREAM] if stream == DEFAULT_STREAM else [stream]:
                while self._queues[one] and not until():
                    self._do(self._queues[one].popleft(), call)

    def _do(self, work: Callable[[], None], call: str) -> None:
        try:
            work()
        except IllegalAccess as access:
            self.lost = f"an illegal memory access was encountered ({access})"
            self.note("lost", str(access))
            for queue in self._queues.values():
                queue.clear()
            self.check(call)

    def check(self, call: str) -> None:
        """Raise if the device is lost: then every call fails."""
        if self.lost:
            self.note("after_loss", call)
            raise LogicError(f"{call} failed: {self.lost}")

    # ---- capture

    def is_capturing(self, stream: int) -> bool:
        """Whether the stream is captured."""
        return stream in self._captures

    def begin_capture(self, stream: int, mode: int) -> None:
        """From now on, record what is enqueued on the stream instead of doing it."""
        self.check("cuStreamBeginCapture")
        if stream == DEFAULT_STREAM or stream not in self._queues or stream in self._captures:
            raise LogicError("cuStreamBeginCapture failed: operation not permitted on this stream")
        self._captures[stream] = Capture(threading.get_ident(), mode)

    def end_capture(self, stream: int) -> list[Callable[[], None]]:
        """The recorded work; the stream is an ordinary one again."""
        capture = self._captures.get(stream)
        if capture is None:
            raise LogicError("cuStreamEndCapture failed: the stream is not capturing")
        if capture.mode != RELAXED and capture.thread != threading.get_ident():
            raise LogicError(
                "cuStreamEndCapture failed: attempt to terminate a thread-local capture sequence from another thread"
            )
        del self._captures[stream]
        if capture.broken:
            raise LogicError(f"cuStreamEndCapture failed: {_INVALIDATED}")
        return capture.work

    def break_capture(self, stream: int) -> None:
        """Something was asked of a captured stream that cannot be recorded."""
        self._captures[stream].broken = True

    def _reject_unsafe(self, call: str, only: bool = True) -> None:
        """Calls that may synchronize behind the scenes spoil the captures of this thread."""
        self.check(call)
        forbidding = [capture for capture in self._captures.values() if only and capture.forbids_unsafe_calls()]
        for capture in forbidding:
            capture.broken = True
        if forbidding:
            raise LogicError(f"{call} failed: {_CAPTURING}")


_current: list[Any] = [Gpu()]


def current() -> Gpu:
    """The device that all stand-ins use."""
    gpu: Gpu = _current[0]
    return gpu


def reset(capability: tuple[int, int] = (9, 0), total_memory: int = 80 << 30, trace: list[Row] | None = None) -> Gpu:
    """Plug in another device; what lives on the old one is of no use any more. The arguments are those of `Gpu`."""
    _current[0] = Gpu(capability, total_memory, trace)
    return current()


@contextmanager
def another(trace: list[Row] | None = None) -> Iterator[Gpu]:
    """Another device inside the block. Afterwards the one before is back, with all that lives on it."""
    before = current()
    try:
        yield reset(trace=trace)
    finally:
        _current[0] = before
