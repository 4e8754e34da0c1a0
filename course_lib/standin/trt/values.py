"""Small classes of the stand-in: loggers, shapes, weights, host memory, and those that users derive from."""

# ruff: noqa: D101, D102  (NVIDIA documents these classes and calls)

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from course_lib.standin.conforming import Template, convert, kept
from course_lib.standin.onnx_model import numpy_type


def report(logger: Any, severity: str, message: str) -> None:
    """Log as TensorRT does: what the user's logger raises is printed and dropped."""
    call_user("log", logger.log, getattr(logger.Severity, severity), message)


def call_user(name: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """A callback into the user's code; None if it raises, for TensorRT lets no exception through."""
    try:
        return function(*arguments)
    except Exception as error:
        print(f"[ERROR] Exception caught in {name}(): {error}", file=sys.stderr)
        return None


class ILogger(Template):
    def __init__(self) -> None: ...

    def log(self, severity: Any, msg: str) -> None:
        print('[ERROR] Exception caught in log(): Tried to call pure virtual function "ILogger::log"', file=sys.stderr)


class Logger(Template):
    def __init__(self, min_severity: Any = None) -> None:
        self._min_severity = min_severity or self._trt.ILogger.Severity.WARNING

    min_severity = kept("_min_severity", "ILogger.Severity")

    def log(self, severity: Any, msg: str) -> None:
        if int(severity) <= int(self._min_severity):
            print(f"[TRT] [{severity.name[0]}] {msg}")


class IProfiler(Template):
    def __init__(self) -> None: ...

    def report_layer_time(self, layer_name: str, ms: float) -> None:
        print('[ERROR] Tried to call pure virtual function "IProfiler::report_layer_time"', file=sys.stderr)


class IOutputAllocator(Template):
    """Asked for by name: ``reallocate_output_async`` or ``reallocate_output``, and ``notify_shape``."""

    def __init__(self) -> None: ...


class IProgressMonitor(Template):
    def __init__(self) -> None: ...

    def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
        raise NotImplementedError('Tried to call pure virtual function "IProgressMonitor::phase_start"')

    def step_complete(self, phase_name: str, step: int) -> bool:
        raise NotImplementedError('Tried to call pure virtual function "IProgressMonitor::step_complete"')

    def phase_finish(self, phase_name: str) -> None:
        raise NotImplementedError('Tried to call pure virtual function "IProgressMonitor::phase_finish"')


class Dims(Template):
    """Compares with tuples, is none, and cannot be a key."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, shape: Any = ()) -> None:
        self._sizes = [int(size) for size in shape]

    def __len__(self) -> int:
        return len(self._sizes)

    def __getitem__(self, index: Any) -> Any:
        found = self._sizes[index]
        return tuple(found) if isinstance(index, slice) else found

    def __setitem__(self, index: int, value: int) -> None:
        self._sizes[index] = value

    def __iter__(self) -> Iterator[int]:
        return iter(self._sizes)

    def __eq__(self, other: object) -> bool:
        fits, sizes = convert(other, "Sequence[SupportsInt]", None)
        return bool(fits and list(sizes) == self._sizes)

    def __repr__(self) -> str:
        return str(tuple(self._sizes))


class Weights(Template):
    """Points to the numbers of an array, and does not keep the array."""

    def __init__(self, type: Any = None, ptr: int = 0, count: int = 0, a: np.ndarray | None = None) -> None:
        trt = self._trt
        if a is not None:
            names = [
                name for name in ("FLOAT", "HALF", "INT8", "INT32", "INT64", "BOOL", "UINT8") if numpy_type(name) == a.dtype
            ]
            if not names:
                raise TypeError(f"Unsupported numpy data type {a.dtype}")
            if not a.flags.c_contiguous:
                raise ValueError("Weights need a contiguous array")
            self._dtype, self._count, self._pointer = getattr(trt.DataType, names[0]), a.size, a.ctypes.data
        else:
            self._dtype, self._count, self._pointer = type or trt.DataType.FLOAT, count, ptr

    @property
    def dtype(self) -> Any:
        return self._dtype

    @property
    def size(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        return self._count * numpy_type(self._dtype.name).itemsize

    def numpy(self) -> np.ndarray:
        import ctypes

        if not self._count:
            return np.empty(0, numpy_type(self._dtype.name))
        memory = (ctypes.c_uint8 * self.nbytes).from_address(self._pointer)
        return np.frombuffer(memoryview(memory).cast("B"), numpy_type(self._dtype.name))

    def __len__(self) -> int:
        return self._count


def host_memory(trt: Any) -> type:
    """`IHostMemory`, which has the buffer protocol and neither a length nor items. Only bytes give a class that protocol."""

    class IHostMemory(bytes):
        @property
        def nbytes(self) -> int:
            return memoryview(self).nbytes

        @property
        def dtype(self) -> Any:
            return trt.DataType.INT8

        def __bool__(self) -> bool:
            return True

        def __len__(self) -> int:
            raise TypeError("object of type 'tensorrt.IHostMemory' has no len()")

        def __getitem__(self, index: Any) -> Any:
            raise TypeError("'tensorrt.IHostMemory' object is not subscriptable")

        __iter__ = __getitem__  # type: ignore[assignment]

    return IHostMemory
