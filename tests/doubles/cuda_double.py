"""A stand-in for what the course uses of `pycuda.driver`, and for CUDA graphs. `reset` plugs in a fresh device.

`tests.doubles.install` puts it in place.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from tests.doubles import gpu
from tests.doubles.gpu import DEFAULT_STREAM, GLOBAL, Error, LogicError, reset

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
    "begin_capture",
    "end_capture",
    "init",
    "instantiate",
    "launch",
    "mem_alloc",
    "mem_get_info",
    "memcpy_dtod_async",
    "memcpy_dtoh",
    "memcpy_dtoh_async",
    "memcpy_htod",
    "memcpy_htod_async",
    "pagelocked_empty",
    "reset",
]


def init(flags: int = 0) -> None:
    gpu.current().check("cuInit")


class Device:
    def __init__(self, ordinal: int) -> None:
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
        Context._depths[threading.get_ident()] = Context.depth() + 1

    @staticmethod
    def pop() -> None:
        if Context.depth() == 0:
            raise LogicError("context::pop failed: invalid device context - cannot pop non-current context")
        Context._depths[threading.get_ident()] -= 1

    @staticmethod
    def synchronize() -> None:
        _device("cuCtxSynchronize").synchronize(DEFAULT_STREAM, "cuCtxSynchronize")

    @staticmethod
    def depth() -> int:
        return Context._depths.get(threading.get_ident(), 0)


def _device(call: str) -> gpu.Gpu:
    """The device, if a context is current in this thread."""
    if Context.depth() == 0:
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


def mem_alloc(bytes: int) -> DeviceAllocation:
    return DeviceAllocation(bytes)


def mem_get_info() -> tuple[int, int]:
    device = _device("cuMemGetInfo")
    return device.free_memory, device.total_memory


class PagelockedHostAllocation(bytearray):
    """Host memory that the device reads and writes directly: a copy sees what is in it when the copy runs, not when it is asked for."""


def pagelocked_empty(shape: Any, dtype: Any, order: str = "C", mem_flags: int = 0) -> np.ndarray:
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    memory = PagelockedHostAllocation(b"\xff" * max(size, 1))
    return np.frombuffer(memory, np.uint8, count=size).view(dtype).reshape(shape, order=order)  # type: ignore[call-overload]


def _is_pagelocked(array: Any) -> bool:
    while isinstance(array, np.ndarray):
        array = array.base
    array = array.obj if isinstance(array, memoryview) else array
    return isinstance(array, PagelockedHostAllocation)


def _bytes_of(host: Any) -> np.ndarray:
    array = host if isinstance(host, np.ndarray) else np.frombuffer(host, np.uint8)
    if not array.flags.c_contiguous:
        raise ValueError("ndarray is not contiguous")
    return array.reshape(-1).view(np.uint8)


def memcpy_htod_async(dest: Any, src: Any, stream: Stream | None = None) -> None:
    host = _bytes_of(src)
    host = host if _is_pagelocked(src) else host.copy()  # the driver copies ordinary memory before it returns
    _copy("cuMemcpyHtoDAsync", host.nbytes, stream, lambda device: np.copyto(device, host), int(dest))


def memcpy_dtoh_async(dest: Any, src: Any, stream: Stream | None = None) -> None:
    host = _bytes_of(dest)
    _copy("cuMemcpyDtoHAsync", host.nbytes, stream, lambda device: np.copyto(host, device), int(src))


def memcpy_dtod_async(dest: Any, src: Any, size: int, stream: Stream | None = None) -> None:
    def copy(source: np.ndarray, target: np.ndarray) -> None:
        np.copyto(target, source)

    _copy("cuMemcpyDtoDAsync", size, stream, copy, int(src), int(dest))


def memcpy_htod(dest: Any, src: Any) -> None:
    memcpy_htod_async(dest, src)
    Context.synchronize()


def memcpy_dtoh(dest: Any, src: Any) -> None:
    memcpy_dtoh_async(dest, src)
    Context.synchronize()


def _copy(call: str, size: int, stream: Stream | None, copy: Callable[..., None], *addresses: int) -> None:
    device = _device(call)
    if not all(device.owns(address, size) for address in addresses):
        device.check(call)
        raise LogicError(f"{call} failed: invalid argument")
    work = lambda: copy(*(device.view(address, size) for address in addresses))  # noqa: E731
    device.enqueue(stream.handle if stream else DEFAULT_STREAM, work, call)


# ---- streams and events


class Stream:
    def __init__(self, flags: int = 0) -> None:
        self.handle = _device("cuStreamCreate").create_stream()

    def synchronize(self) -> None:
        _device("cuStreamSynchronize").synchronize(self.handle, "cuStreamSynchronize")

    def wait_for_event(self, event: Event) -> None:
        device = _device("cuStreamWaitEvent")
        if device.is_capturing(self.handle):
            device.break_capture(self.handle)
            raise LogicError("cuStreamWaitEvent failed: dependency created on uncaptured work in another stream")
        device.enqueue(self.handle, event.wait, "cuStreamWaitEvent")


class Event:
    def __init__(self, flags: int = 0) -> None:
        self._stream: int | None = None
        self._seconds: float | None = None

    def record(self, stream: Stream | None = None) -> Event:
        handle = stream.handle if stream else DEFAULT_STREAM
        device = _device("cuEventRecord")
        if device.is_capturing(handle):
            device.enqueue(handle, lambda: None, "cuEventRecord")
        else:
            device.enqueue(handle, self._happen, "cuEventRecord")
        self._stream, self._seconds = handle, None
        return self

    def synchronize(self) -> Event:
        if self._stream is not None:
            _device("cuEventSynchronize").synchronize(self._stream, "cuEventSynchronize", until=self.query)
        return self

    wait = synchronize

    def query(self) -> bool:
        return self._seconds is not None

    def time_till(self, event: Event) -> float:
        """Milliseconds between the moments when the two came up in their streams."""
        if self._seconds is None or event._seconds is None:
            raise LogicError("cuEventElapsedTime failed: device not ready")
        return (event._seconds - self._seconds) * 1000

    def time_since(self, event: Event) -> float:
        return event.time_till(self)

    def _happen(self) -> None:
        self._seconds = time.perf_counter()


# ---- graphs, which pycuda lacks

Work = list[Callable[[], None]]


def begin_capture(stream_handle: int, mode: int = GLOBAL) -> None:
    gpu.current().begin_capture(stream_handle, mode)


def end_capture(stream_handle: int) -> Work:
    return gpu.current().end_capture(stream_handle)


def instantiate(graph: Work) -> Work:
    return list(graph)


def launch(graph: Work, stream_handle: int) -> None:
    for work in graph:
        gpu.current().enqueue(stream_handle, work, "cuGraphLaunch")
