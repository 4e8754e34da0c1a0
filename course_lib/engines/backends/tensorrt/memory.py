"""Memory for an engine's tensors: device memory and pinned host memory, with pycuda.

A copy between device and host overlaps with other work only if the host memory is pinned (page-locked). From ordinary memory, the
driver first copies to its own pinned buffer, and `memcpy_htod_async` is then asynchronous in name only.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import sys
import threading
from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from course_lib.errors import BackendUnavailable, EngineError

_of_this_thread = threading.local()


def cuda() -> ModuleType:
    """The `pycuda.driver` module. It makes the device's primary context, which torch also uses, current in this thread."""
    driver, primary = _primary()
    if not hasattr(_of_this_thread, "current"):
        _of_this_thread.current = _Current(driver, primary)
    return driver


@cache
def _primary() -> tuple[ModuleType, Any]:
    _load_tensorrt()
    try:
        import pycuda.driver as driver
    except ImportError:
        raise BackendUnavailable("running a plan needs pycuda for its buffers: pip install pycuda") from None
    driver.init()
    return driver, driver.Device(0).retain_primary_context()


def _load_tensorrt() -> None:
    """Import TensorRT if this process has not done so and it is installed.

    If pycuda comes first, the first `Builder` of TensorRT 8.6.0 ends the process with a segmentation fault.
    """
    if not {"tensorrt", "tensorrt_rtx"} & sys.modules.keys():
        with contextlib.suppress(ImportError):
            importlib.import_module("tensorrt")


class _Current:
    """A context is current until its thread ends: pycuda aborts a process that leaves one on a thread's stack."""

    def __init__(self, driver: Any, context: Any) -> None:
        context.push()
        self._pop = driver.Context.pop
        if threading.current_thread() is threading.main_thread():
            atexit.register(self.close)

    def close(self) -> None:
        pop, self._pop = self._pop, None
        if pop is not None:
            pop()

    __del__ = close


class Buffer:
    """Memory of one tensor, on the device and pinned on the host. It grows, and it never shrinks."""

    def __init__(self) -> None:
        self.size = 0
        self._device: Any = None
        self._pinned = np.empty(0, np.uint8)

    @property
    def address(self) -> int:
        """Address of the device memory; 0 before the first `grow`."""
        return int(self._device) if self._device is not None else 0

    def grow(self, size: int) -> None:
        """Have at least `size` bytes; growing moves the buffer, so its address is another one afterwards.

        Raises:
            EngineError: the device does not have enough free memory.
        """
        if self._device is None or size > self.size:
            self._device = None  # the old one is free before the new one is asked for
            self._device, self.size = allocate(size), size

    def upload(self, array: np.ndarray, stream: Any) -> None:
        """Copy an array to the device on a stream; the array may change as soon as this returns."""
        self.grow(array.nbytes)
        staged = self._host(array.nbytes)
        staged[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        if array.nbytes:
            cuda().memcpy_htod_async(self.address, staged, stream)

    def download(self, size: int, stream: Any) -> None:
        """Enqueue the copy of the first `size` bytes to pinned memory; `array` reads them once the stream is synchronized."""
        if size:
            cuda().memcpy_dtoh_async(self._host(size), self.address, stream)

    def array(self, shape: Sequence[int], dtype: str) -> np.ndarray:
        """A copy of the downloaded data."""
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        return self._pinned[:size].view(dtype).reshape(shape).copy()

    def _host(self, size: int) -> np.ndarray:
        if size > len(self._pinned):
            self._pinned = cuda().pagelocked_empty(size, np.uint8)
        return self._pinned[:size]


def allocate(size: int) -> Any:
    """Device memory of `size` bytes, freed together with the returned object.

    Raises:
        EngineError: the device does not have enough free memory.
    """
    try:
        return cuda().mem_alloc(max(size, 1))
    except cuda().MemoryError:
        free, total = cuda().mem_get_info()
        raise EngineError(f"the GPU has {free >> 20} of {total >> 20} MiB free, {max(size >> 20, 1)} MiB are needed") from None


def output_allocator(trt: Any, buffer: Buffer) -> Any:
    """An `IOutputAllocator` for an output whose shape depends on data: TensorRT requests memory when the size is known.

    Its attribute `shape` is the output's shape after a run.
    """

    class Allocator(trt.IOutputAllocator):
        def __init__(self) -> None:
            trt.IOutputAllocator.__init__(self)
            self.shape: tuple[int, ...] = ()

        def reallocate_output(self, tensor_name: str, memory: int, size: int, alignment: int) -> int:
            buffer.grow(size)  # cudaMalloc aligns to 256 bytes, more than TensorRT asks for
            return buffer.address

        def reallocate_output_async(self, tensor_name: str, memory: int, size: int, alignment: int, stream: int) -> int:
            return self.reallocate_output(tensor_name, memory, size, alignment)

        def notify_shape(self, tensor_name: str, shape: Sequence[int]) -> None:
            self.shape = tuple(shape)

    return Allocator()
