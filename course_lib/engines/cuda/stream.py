"""A CUDA stream with a clock, through the driver, because a worker's environment may have neither torch nor pycuda.

Source: CUDA Driver API, sections "Primary Context Management", "Stream Management" and "Event Management".
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

from course_lib.engines.cuda import driver, two_clocks

_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING: not ordered with the default stream


class CudaStream:
    """A stream in the first GPU's primary context, which torch, pycuda and ONNX Runtime also use.

    Attributes:
        handle: the ``cudaStream_t`` of CUDA libraries, as a number.

    Raises:
        BackendUnavailable: no driver.
        EngineError: the driver reports an error; the text names its call and its error.
    """

    def __init__(self) -> None:
        self._library = driver.library()
        device = ctypes.c_int()
        self._context, stream, self._begin, self._end = (ctypes.c_void_p() for _ in range(4))
        self._call("cuInit", 0)
        self._call("cuDeviceGet", ctypes.byref(device), 0)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), device)
        self._call("cuCtxSetCurrent", self._context)
        self._call("cuStreamCreate", ctypes.byref(stream), _NON_BLOCKING)
        for event in (self._begin, self._end):
            self._call("cuEventCreate", ctypes.byref(event), 0)
        self._stream = stream
        self.handle = int(stream.value or 0)

    def time_ms(self, enqueue: Callable[[], None]) -> float:
        """Device time in milliseconds between two events on this stream, around what `enqueue` puts there.

        Raises:
            EngineError: the driver reports an error, or work went to another stream; see `two_clocks`.
        """
        self._call("cuCtxSetCurrent", self._context)  # a stream is only known where its context is current
        return two_clocks.event_ms(lambda: self._between_events(enqueue), lambda: self._call("cuCtxSynchronize"))

    def _between_events(self, enqueue: Callable[[], None]) -> float:
        self._call("cuStreamSynchronize", self._stream)
        self._call("cuEventRecord", self._begin, self._stream)
        enqueue()
        self._call("cuEventRecord", self._end, self._stream)
        self._call("cuEventSynchronize", self._end)
        elapsed = ctypes.c_float()
        self._call("cuEventElapsedTime", ctypes.byref(elapsed), self._begin, self._end)
        return elapsed.value

    def _call(self, name: str, *arguments: Any) -> None:
        driver.call(self._library, name, *arguments)


@cache
def own_stream() -> CudaStream:
    """The one stream of this process that engines run on by default; it lives as long as the process."""
    return CudaStream()
