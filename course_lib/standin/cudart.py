"""A stand-in for what the course uses of `cuda.bindings.runtime`, NVIDIA's cuda-python, on the device of `gpu`.

Each call returns a tuple that begins with an error code. Nothing is given back by itself: every resource has its own call for that.
`installation` puts the module in place.
"""

# ruff: noqa: D101, D103  (NVIDIA documents these classes and calls)

from __future__ import annotations

import ctypes
from collections.abc import Callable
from enum import IntEnum
from functools import wraps
from types import SimpleNamespace
from typing import Any

import numpy as np

from course_lib.standin import cuda_driver, gpu


class cudaError_t(IntEnum):
    cudaSuccess = 0
    cudaErrorInvalidValue = 1
    cudaErrorMemoryAllocation = 2
    cudaErrorInvalidResourceHandle = 400
    cudaErrorIllegalAddress = 700


class cudaMemcpyKind(IntEnum):
    cudaMemcpyHostToDevice = 1
    cudaMemcpyDeviceToHost = 2
    cudaMemcpyDeviceToDevice = 3


class cudaStream_t(int):
    """A handle, which `execute_async_v3` takes as it is."""


class cudaEvent_t(int):
    """A handle."""


_held: dict[int, Any] = {}  # streams and events by handle, page-locked memory by address: they stay until they are given back


def _call(function: Callable[..., Any]) -> Callable[..., tuple[Any, ...]]:
    """The function with an error code before its result, and the primary context on this thread, as the runtime has it."""

    @wraps(function)
    def call(*arguments: Any) -> tuple[Any, ...]:
        if cuda_driver.Context._depth() == 0:
            cuda_driver.Context().push()
        try:
            result = function(*arguments)
        except KeyError:
            return (cudaError_t.cudaErrorInvalidResourceHandle, None)
        except gpu.OutOfMemory:
            return (cudaError_t.cudaErrorMemoryAllocation, None)
        except gpu.Error:
            lost = gpu.current().lost
            return (cudaError_t.cudaErrorIllegalAddress if lost else cudaError_t.cudaErrorInvalidValue, None)
        return (cudaError_t.cudaSuccess,) if result is None else (cudaError_t.cudaSuccess, result)

    return call


def cudaGetErrorString(error: cudaError_t) -> tuple[cudaError_t, bytes]:
    return cudaError_t.cudaSuccess, error.name.encode()


@_call
def cudaDeviceSynchronize() -> None:
    cuda_driver.Context.synchronize()


# ---- memory


@_call
def cudaMalloc(size: int) -> int:
    return gpu.current().allocate(size)


@_call
def cudaFree(devPtr: int) -> None:
    gpu.current().free(int(devPtr))


@_call
def cudaMallocHost(size: int) -> int:
    memory = cuda_driver.pagelocked_empty(size, np.uint8)
    _held[memory.ctypes.data] = memory
    return int(memory.ctypes.data)


@_call
def cudaFreeHost(ptr: int) -> None:
    del _held[int(ptr)]


@_call
def cudaMemcpyAsync(dst: Any, src: Any, count: int, kind: cudaMemcpyKind, stream: int) -> None:
    on = SimpleNamespace(handle=int(stream))
    if kind is cudaMemcpyKind.cudaMemcpyHostToDevice:
        cuda_driver.memcpy_htod_async(int(dst), _host(src, count), on)  # type: ignore[arg-type]
    elif kind is cudaMemcpyKind.cudaMemcpyDeviceToHost:
        cuda_driver.memcpy_dtoh_async(_host(dst, count), int(src), on)  # type: ignore[arg-type]
    else:
        cuda_driver.memcpy_dtod_async(int(dst), int(src), count, on)  # type: ignore[arg-type]


def _host(place: Any, count: int) -> np.ndarray:
    """Bytes of the host, by an address or an array. Those of page-locked memory are a view of it."""
    address = place.ctypes.data if isinstance(place, np.ndarray) else int(place)
    for start, memory in _held.items():
        if isinstance(memory, np.ndarray) and start <= address and address + count <= start + memory.nbytes:
            return memory[address - start : address - start + count]
    return np.ctypeslib.as_array((ctypes.c_uint8 * count).from_address(address))


# ---- streams and events


@_call
def cudaStreamCreate() -> cudaStream_t:
    stream = cuda_driver.Stream()
    _held[stream.handle] = stream
    return cudaStream_t(stream.handle)


@_call
def cudaStreamDestroy(stream: int) -> None:
    del _held[int(stream)]


@_call
def cudaStreamSynchronize(stream: int) -> None:
    _held[int(stream)].synchronize()


@_call
def cudaStreamWaitEvent(stream: int, event: int, flags: int) -> None:
    _held[int(stream)].wait_for_event(_held[int(event)])


@_call
def cudaEventCreate() -> cudaEvent_t:
    event = cuda_driver.Event()
    _held[event._handle] = event
    return cudaEvent_t(event._handle)


@_call
def cudaEventDestroy(event: int) -> None:
    del _held[int(event)]


@_call
def cudaEventRecord(event: int, stream: int) -> None:
    _held[int(event)].record(_held[int(stream)])


@_call
def cudaEventSynchronize(event: int) -> None:
    _held[int(event)].synchronize()
