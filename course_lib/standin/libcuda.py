"""A stand-in for `ctypes.CDLL("libcuda.so.1")`: the driver's C functions that the course calls, on the device of `gpu`.

A CUDA graph is the recorded work of a stream.

`course_lib.standin.installation` puts it in place.
"""

# ruff: noqa: D102  (NVIDIA documents these classes and calls)

from __future__ import annotations

from typing import Any

from course_lib.standin import gpu

SUCCESS, INVALID_VALUE, INVALID_HANDLE, CAPTURE_UNSUPPORTED, CAPTURE_INVALIDATED = 0, 1, 400, 900, 901
_NAMES = {
    INVALID_VALUE: b"CUDA_ERROR_INVALID_VALUE",
    INVALID_HANDLE: b"CUDA_ERROR_INVALID_HANDLE",
    CAPTURE_UNSUPPORTED: b"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
    CAPTURE_INVALIDATED: b"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
}
_ATTRIBUTES = {75: 0, 76: 1}  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_{MAJOR,MINOR}


class LibCuda:
    """Functions return a status; what they make is written where a ``byref`` points."""

    def __init__(self) -> None:
        self._objects: dict[int, Any] = {}

    def cuInit(self, flags: int) -> int:
        return SUCCESS

    def cuDeviceGet(self, device: Any, ordinal: int) -> int:
        device._obj.value = ordinal
        return SUCCESS if ordinal == 0 else INVALID_VALUE

    def cuDeviceGetCount(self, count: Any) -> int:
        count._obj.value = 1
        return SUCCESS

    def cuDeviceGetUuid(self, name: Any, device: Any) -> int:
        name[:] = range(16)
        return SUCCESS

    def cuDeviceGetName(self, name: Any, length: int, device: Any) -> int:
        name.value = b"NVIDIA Stand-in"
        return SUCCESS

    def cuDeviceGetAttribute(self, value: Any, attribute: int, device: Any) -> int:
        value._obj.value = gpu.current().capability[_ATTRIBUTES[attribute]]
        return SUCCESS

    def cuStreamBeginCapture_v2(self, stream: Any, mode: int) -> int:
        try:
            gpu.current().begin_capture(stream.value or 0, mode)
        except gpu.LogicError:
            return CAPTURE_UNSUPPORTED
        return SUCCESS

    def cuStreamEndCapture(self, stream: Any, graph: Any) -> int:
        try:
            graph._obj.value = self._keep(gpu.current().end_capture(stream.value or 0))
        except gpu.LogicError:
            graph._obj.value = None
            return CAPTURE_INVALIDATED
        return SUCCESS

    def cuGraphInstantiateWithFlags(self, executable: Any, graph: Any, flags: Any) -> int:
        if graph.value not in self._objects:
            return INVALID_HANDLE
        executable._obj.value = self._keep(list(self._objects[graph.value]))
        return SUCCESS

    def cuGraphLaunch(self, executable: Any, stream: Any) -> int:
        if executable.value not in self._objects:
            return INVALID_HANDLE
        for work in self._objects[executable.value]:
            gpu.current().enqueue(stream.value or 0, work, "cuGraphLaunch")
        return SUCCESS

    def cuGraphDestroy(self, graph: Any) -> int:
        return SUCCESS if self._objects.pop(graph.value, None) is not None else INVALID_HANDLE

    cuGraphExecDestroy = cuGraphDestroy

    def cuGetErrorName(self, status: int, name: Any) -> int:
        name._obj.value = _NAMES.get(status)
        return SUCCESS if status in _NAMES else INVALID_VALUE

    def _keep(self, thing: Any) -> int:
        handle = gpu.current().new_handle()
        self._objects[handle] = thing
        return handle
