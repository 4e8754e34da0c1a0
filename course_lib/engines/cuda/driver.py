"""NVIDIA's driver: its calls, and queries that must come before any CUDA library is loaded."""

from __future__ import annotations

import ctypes
import uuid
from functools import cache

from course_lib.errors import BackendUnavailable, EngineError

_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_{MAJOR,MINOR} in cuda.h


@cache
def capability() -> str | None:
    """Compute capability of the first GPU, such as ``"sm90"``; None if no driver or no GPU answers.

    TensorRT's own calls are not used: without a driver, ``trt.Runtime(logger)`` returns an unusable object, and the next call on it
    ends the process.
    """
    if (driver := _driver()) is None:
        return None
    device, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    calls = (
        lambda: driver.cuDeviceGet(ctypes.byref(device), 0),
        lambda: driver.cuDeviceGetAttribute(ctypes.byref(major), _MAJOR, device),
        lambda: driver.cuDeviceGetAttribute(ctypes.byref(minor), _MINOR, device),
    )
    if any(call() != 0 for call in calls):
        return None
    return f"sm{major.value}{minor.value}"


@cache
def model() -> str:
    """The first GPU's name, such as ``"NVIDIA H200"``; empty if no driver or no GPU answers."""
    if (driver := _driver()) is None:
        return ""
    device, name = ctypes.c_int(), ctypes.create_string_buffer(256)
    known = driver.cuDeviceGet(ctypes.byref(device), 0) == 0 == driver.cuDeviceGetName(name, len(name), device)
    return name.value.decode(errors="replace") if known else ""


def uuids() -> tuple[str, ...]:
    """The GPUs that this process sees, named as by ``nvidia-smi -L``; empty if no driver or no GPU answers.

    The driver has resolved CUDA_VISIBLE_DEVICES, whether it holds numbers, names or nothing. A part of a GPU (MIG) has the
    name of the whole.
    """
    if capability() is None:
        return ()
    driver, count, found = library(), ctypes.c_int(), []
    driver.cuDeviceGetCount(ctypes.byref(count))
    for ordinal in range(count.value):
        device, name = ctypes.c_int(), (ctypes.c_ubyte * 16)()
        if driver.cuDeviceGet(ctypes.byref(device), ordinal) == 0 == driver.cuDeviceGetUuid(name, device):
            found.append(f"GPU-{uuid.UUID(bytes=bytes(name))}")
    return tuple(dict.fromkeys(found))


def _driver() -> ctypes.CDLL | None:
    """The initialized driver; None if there is no driver or no device."""
    try:
        driver = library()
    except BackendUnavailable:
        return None
    return driver if driver.cuInit(0) == 0 else None


def library() -> ctypes.CDLL:
    """The driver's functions, which return a status.

    Raises:
        BackendUnavailable: there is no driver.
    """
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise BackendUnavailable("no NVIDIA driver answers on this machine") from None


def call(driver: ctypes.CDLL, name: str, *arguments: object, advice: str = "") -> None:
    """Call a function of the driver.

    Raises:
        EngineError: it returned an error; the text names both, and ends with `advice`.
    """
    if status := getattr(driver, name)(*arguments):
        text = ctypes.c_char_p()
        driver.cuGetErrorName(status, ctypes.byref(text))
        raise EngineError(f"{name} failed with {text.value.decode() if text.value else f'error {status}'}{advice}")
