"""A stand-in for what the course uses of `pycuda.driver`, on the device of `gpu`. `installation` puts it in place."""

# ruff: noqa: D101, D102, D103  (pycuda documents these classes and calls)

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from course_lib.standin import gpu
from course_lib.standin.gpu import DEFAULT_STREAM, Error, LogicError

MemoryError = gpu.OutOfMemory

__all__ = [
    "Context",
    "Device",
    "DeviceAllocation",
    "Error",
    "Event",
    "LogicError",
    "MemoryError",
    "Stream",
    "init",
    "mem_alloc",
    "mem_get_info",
    "memcpy_dtod_async",
    "memcpy_dtoh",
    "memcpy_dtoh_async",
    "memcpy_htod",
    "memcpy_htod_async",
    "pagelocked_empty",
    "pagelocked_zeros",
]


def init(flags: int = 0) -> None:
    gpu.current().check("cuInit")


class Device:
    def __init__(self, ordinal: int, /) -> None:
        if ordinal != 0:
            raise LogicError("cuDeviceGet failed: invalid device ordinal")

    def retain_primary_context(self) -> Context:
        return Context()

    def compute_capability(self) -> tuple[int, int]:
        return gpu.current().capability

    def total_memory(self) -> int:
        return gpu.current().total_memory

    def name(self) -> str:
        return "GPU on the host"


class Context:
    """The primary context. Each thread has its own stack, and nearly every call needs a context on it."""

    _depths: ClassVar[dict[int, int]] = {}  # by thread; as in pycuda they outlive what Python keeps for a thread

    def push(self) -> None:
        Context._depths[threading.get_ident()] = Context._depth() + 1

    @staticmethod
    def pop() -> None:
        if Context._depth() == 0:
            raise LogicError("context::pop failed: invalid device context - cannot pop non-current context")
        Context._depths[threading.get_ident()] -= 1

    @staticmethod
    def synchronize() -> None:
        device = _device("cuCtxSynchronize")
        device.synchronize(DEFAULT_STREAM, "cuCtxSynchronize")
        device.note("sync_device")

    @staticmethod
    def _depth() -> int:
        return Context._depths.get(threading.get_ident(), 0)


def _device(call: str) -> gpu.Gpu:
    """The device, if a context is current in this thread."""
    if Context._depth() == 0:
        raise LogicError(f"{call} failed: invalid device context")
    return gpu.current()


# ---- memory


class DeviceAllocation:
    """Device memory that is freed when this object goes, as pycuda's is."""

    def __init__(self, size: int) -> None:
        self._gpu = _device("cuMemAlloc")
        self._address: int | None = self._gpu.allocate(size)

    def free(self) -> None:
        if self._address is None:
            raise LogicError("device_allocation::free failed: invalid device pointer")
        address, self._address = self._address, None
        self._gpu.free(address)

    def __int__(self) -> int:
        if self._address is None:
            raise LogicError("the memory was freed")
        return self._address

    __index__ = __int__

    def __del__(self) -> None:
        if getattr(self, "_address", None) is not None:
            self.free()


def mem_alloc(bytes: int, /) -> DeviceAllocation:
    return DeviceAllocation(bytes)


def mem_get_info() -> tuple[int, int]:
    device = _device("cuMemGetInfo")
    return device.free_memory, device.total_memory


class PagelockedHostAllocation(bytearray):
    """Host memory that the device reads and writes directly: a copy sees what is in it when the copy runs, not when it is asked for."""

    handle = 0  # in a trace
    readers = 0  # copies from it that have not run yet


def pagelocked_empty(shape: Any, dtype: Any, order: str = "C", mem_flags: int = 0) -> np.ndarray:
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    memory = PagelockedHostAllocation(b"\xff" * max(size, 1))
    device = _device("cuMemAllocHost")
    memory.handle = device.new_handle()
    device.note("pin", memory.handle, size)
    gpu.when_gone(memory, device.note, "unpin", memory.handle)
    return np.frombuffer(memory, np.uint8, count=size).view(dtype).reshape(shape, order=order)


def pagelocked_zeros(shape: Any, dtype: Any, order: str = "C", mem_flags: int = 0) -> np.ndarray:
    array = pagelocked_empty(shape, dtype, order, mem_flags)
    array[...] = 0
    return array


def _pagelocked(array: Any) -> PagelockedHostAllocation | None:
    """The page-locked memory that an array lies in."""
    while isinstance(array, np.ndarray):
        array = array.base
    array = array.obj if isinstance(array, memoryview) else array
    return array if isinstance(array, PagelockedHostAllocation) else None


def _place(host: np.ndarray, memory: PagelockedHostAllocation | None) -> tuple[int, int]:
    """The handle of the page-locked memory that an array lies in, and its offset in bytes; 0 and 0 in ordinary memory."""
    if memory is None:
        return 0, 0
    return memory.handle, host.ctypes.data - np.frombuffer(memory, np.uint8).ctypes.data


def _bytes_of(host: Any) -> np.ndarray:
    array = host if isinstance(host, np.ndarray) else np.frombuffer(host, np.uint8)
    if not array.flags.c_contiguous:
        raise ValueError("ndarray is not contiguous")
    return array.reshape(-1).view(np.uint8)


def memcpy_htod_async(dest: Any, src: Any, stream: Stream | None = None) -> None:
    host, memory = _bytes_of(src), _pagelocked(src)
    host = host if memory is not None else host.copy()  # the driver copies ordinary memory before it returns
    row = ["in", _handle(stream), int(dest), host.nbytes, *_place(host, memory), host.tobytes(), False]

    if memory is not None:
        memory.readers += 1

    def copy(device: np.ndarray) -> None:
        if memory is not None:
            memory.readers -= 1
        np.copyto(device, host)
        row[-1] = host.tobytes() != row[-2]

    _copy("cuMemcpyHtoDAsync", host.nbytes, stream, copy, int(dest), row=row)


def memcpy_dtoh_async(dest: Any, src: Any, stream: Stream | None = None) -> None:
    host = _bytes_of(dest)
    memory = _pagelocked(dest)
    if memory is not None and not memory.readers and not _device("cuMemcpyDtoHAsync").is_capturing(_handle(stream)):
        host[...] = (
            0xFF  # from now on the GPU may write here: who reads before a wait sees neither the old bytes nor the new ones
        )
    row = ["out", _handle(stream), int(src), host.nbytes, *_place(host, memory)]
    _copy("cuMemcpyDtoHAsync", host.nbytes, stream, lambda device: np.copyto(host, device), int(src), row=row)


def memcpy_dtod_async(dest: Any, src: Any, size: int, stream: Stream | None = None) -> None:
    def copy(source: np.ndarray, target: np.ndarray) -> None:
        np.copyto(target, source)

    row = ["within", _handle(stream), int(dest), int(src), size]
    _copy("cuMemcpyDtoDAsync", size, stream, copy, int(src), int(dest), row=row)


def memcpy_htod(dest: Any, src: Any) -> None:
    memcpy_htod_async(dest, src)
    Context.synchronize()


def memcpy_dtoh(dest: Any, src: Any) -> None:
    memcpy_dtoh_async(dest, src)
    Context.synchronize()


def _handle(stream: Stream | None) -> int:
    return stream.handle if stream else DEFAULT_STREAM


def _copy(call: str, size: int, stream: Stream | None, copy: Callable[..., None], *addresses: int, row: gpu.Row) -> None:
    device = _device(call)
    if not all(device.owns(address, size) for address in addresses):
        device.check(call)
        raise LogicError(f"{call} failed: invalid argument")
    work = lambda: copy(*(device.view(address, size) for address in addresses))  # noqa: E731
    device.enqueue(_handle(stream), work, call)
    device.note_row(row)


# ---- streams and events


class Stream:
    def __init__(self, flags: int = 0) -> None:
        device = _device("cuStreamCreate")
        self.handle = device.create_stream()
        gpu.when_gone(self, device.note, "stream_gone", self.handle)

    def synchronize(self) -> None:
        device = _device("cuStreamSynchronize")
        device.synchronize(self.handle, "cuStreamSynchronize")
        device.note("sync_stream", self.handle)

    def wait_for_event(self, event: Event, /) -> None:
        device = _device("cuStreamWaitEvent")
        if device.is_capturing(self.handle):
            device.break_capture(self.handle)
            raise LogicError("cuStreamWaitEvent failed: dependency created on uncaptured work in another stream")
        device.enqueue(self.handle, event._mark.wait, "cuStreamWaitEvent")
        device.note("wait", self.handle, event._handle)


class Mark:
    """One recording of an event. Who waits for an event waits for its last recording at that time, as in CUDA."""

    def __init__(self, stream: int | None = None) -> None:
        self._stream = stream
        self.seconds: float | None = None

    def happen(self) -> None:
        self.seconds = time.perf_counter()

    def reached(self) -> bool:
        return self._stream is None or self.seconds is not None

    def wait(self) -> None:
        if self._stream is not None:
            _device("cuEventSynchronize").synchronize(self._stream, "cuEventSynchronize", until=self.reached)


class Event:
    def __init__(self, flags: int = 0) -> None:
        device = _device("cuEventCreate")
        self._handle, self._mark = device.new_handle(), Mark()
        device.note("event", self._handle)
        gpu.when_gone(self, device.note, "event_gone", self._handle)

    def record(self, stream: Stream | None = None) -> Event:
        device, mark = _device("cuEventRecord"), Mark(_handle(stream))
        work = (lambda: None) if device.is_capturing(_handle(stream)) else mark.happen
        device.enqueue(_handle(stream), work, "cuEventRecord")
        self._mark = mark
        device.note("record", _handle(stream), self._handle)
        return self

    def synchronize(self) -> Event:
        self._mark.wait()
        gpu.current().note("sync_event", self._handle)
        return self

    def query(self) -> bool:
        return self._mark.reached()

    def time_till(self, event: Event, /) -> float:
        """Milliseconds between the moments when the two came up in their streams."""
        begin, end = self._mark.seconds, event._mark.seconds
        if begin is None or end is None:
            raise LogicError("cuEventElapsedTime failed: device not ready")
        return (end - begin) * 1000

    def time_since(self, event: Event, /) -> float:
        return event.time_till(self)
