"""The few questions that must be asked of NVIDIA's driver before any CUDA library is loaded."""

from __future__ import annotations

import ctypes
import uuid
from functools import cache

_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_{MAJOR,MINOR} in cuda.h


@cache
def capability() -> str | None:
    """Compute capability of the first GPU, such as ``"sm90"``; None where no driver or no GPU answers.

    TensorRT's own calls cannot be asked: without a driver ``trt.Runtime(logger)`` returns an object around nothing, and the
    next call on it ends the process.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    device, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    calls = (
        lambda: driver.cuInit(0),
        lambda: driver.cuDeviceGet(ctypes.byref(device), 0),
        lambda: driver.cuDeviceGetAttribute(ctypes.byref(major), _MAJOR, device),
        lambda: driver.cuDeviceGetAttribute(ctypes.byref(minor), _MINOR, device),
    )
    if any(call() != 0 for call in calls):
        return None
    return f"sm{major.value}{minor.value}"


def uuids() -> tuple[str, ...]:
    """The GPUs that this process sees, named as by ``nvidia-smi -L``; empty where no driver or no GPU answers.

    The driver has resolved CUDA_VISIBLE_DEVICES, whether it holds numbers, names or nothing. A part of a GPU (MIG) has the
    name of the whole.
    """
    if capability() is None:
        return ()
    driver, count, found = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), []
    driver.cuDeviceGetCount(ctypes.byref(count))
    for ordinal in range(count.value):
        device, name = ctypes.c_int(), (ctypes.c_ubyte * 16)()
        if driver.cuDeviceGet(ctypes.byref(device), ordinal) == 0 == driver.cuDeviceGetUuid(name, device):
            found.append(f"GPU-{uuid.UUID(bytes=bytes(name))}")
    return tuple(dict.fromkeys(found))
