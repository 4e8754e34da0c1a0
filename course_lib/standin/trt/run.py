"""One run of the stand-in's context, as the work of a stream."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from course_lib.standin import gpu
from course_lib.standin.onnx_model import numpy_type
from course_lib.standin.trt.values import call_user

ALIGNMENT = 256  # of device memory that the user brings


def prepare_run(context: Any, stream: int, captured: bool) -> Callable[[], None]:
    """The run as it is enqueued now: with the shapes, addresses and memory of this moment."""
    engine, shapes, addresses, profile = context._engine, dict(context._shapes), dict(context._addresses), context._profile
    allocators, scratch, device = dict(context._allocators), context._scratch, gpu.current()
    model = engine._model

    def run() -> None:
        if context._device_profile != profile and not captured:
            raise gpu.IllegalAccess(f"profile {profile} was set on another stream and has not arrived")
        if scratch:
            device.view(*scratch)[:] = 0xAA  # what lies there is lost
        feeds = {name: _tensor(device, addresses[name], shapes[name], model.dtypes[name]) for name in model.inputs}
        start = time.perf_counter()
        results = model.run({name: array.copy() for name, array in feeds.items()})
        share = (time.perf_counter() - start) * 1000 / len(model.nodes)  # onnxruntime tells only the sum
        context._times = [(node.name, share) for node in model.nodes]
        for name, array in results.items():
            address = addresses.get(name, 0)
            if name in allocators:
                address = _reallocate(allocators[name], name, address, array, stream)
            _tensor(device, address, array.shape, model.dtypes[name])[...] = array

    return run


def _tensor(device: gpu.Gpu, address: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """The tensor at an address of the device."""
    kind = numpy_type(dtype)
    size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    return device.view(address, size).view(kind).reshape(shape)


def _reallocate(allocator: Any, name: str, address: int, array: np.ndarray, stream: int) -> int:
    """Ask the user for memory and tell the shape, as TensorRT does before it returns from enqueueing."""
    if hasattr(allocator, "reallocate_output_async"):
        arguments = (name, address, array.nbytes, ALIGNMENT, stream)
        found = call_user("reallocateOutputAsync", allocator.reallocate_output_async, *arguments)
    else:
        found = call_user("reallocateOutput", allocator.reallocate_output, name, address, array.nbytes, ALIGNMENT)
    if not found:
        raise gpu.OutOfMemory(f"the output allocator gave no memory for {name}")
    call_user("notify_shape", allocator.notify_shape, name, allocator._trt.Dims(array.shape))
    return int(found)
