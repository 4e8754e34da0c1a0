"""The RoPE kernel as one call, from a library that is compiled for the host or for a GPU."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Protocol

import numpy as np

from course_lib.errors import EngineError
from course_lib.plugins.compilers import compile_for_host, compile_with_nvcc
from course_lib.plugins.reference import check_shapes

DTYPES = ("float32", "float16", "bfloat16")  # in the order of RopeType in rope.h
VECTOR_BYTES = 16

Shape = Sequence[int]  # batch, sequence, heads, head size


class Launcher(Protocol):
    """Enqueues one rotation. Addresses are numbers with the requirements in `rope/rope.h`.

    Raises:
        EngineError: CUDA rejected the launch.
    """

    def __call__(
        self, dtype: str, x: int, cos: int, sin: int, y: int, shape: Shape, *, interleaved: bool = False, stream: int = 0
    ) -> None:
        """Enqueue one rotation of x into y."""


class RopeLibrary:
    """A library compiled from `rope/rope.cu`, or from another source with the interface in `rope/rope.h`.

    Args:
        path: path of the shared library. A library from nvcc takes device pointers and a stream, others take host pointers.
    """

    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path))
        self._launch = library.rope_launch
        self._launch.argtypes = [*[ctypes.c_int] * 2, *[ctypes.c_void_p] * 4, *[ctypes.c_int64] * 4, ctypes.c_void_p]
        self._geometry = library.rope_geometry
        self._geometry.argtypes = [*[ctypes.c_int] * 5, ctypes.POINTER(ctypes.c_uint)]
        self._geometry.restype = None

    def __call__(
        self, dtype: str, x: int, cos: int, sin: int, y: int, shape: Shape, *, interleaved: bool = False, stream: int = 0
    ) -> None:
        """Rotate, as `Launcher` says."""
        status = self._launch(_type_number(dtype), interleaved, x, cos, sin, y, *shape, stream)
        if status != 0:
            raise EngineError(f"the RoPE kernel was not launched for {dtype} of shape {tuple(shape)}: CUDA error {status}")

    def geometry(self, shape: Shape, width: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Grid and block of a launch whose threads load `width` numbers at once."""
        six = (ctypes.c_uint * 6)()
        self._geometry(*shape, width, six)
        return tuple(six[:3]), tuple(six[3:])


def vector_width(dtype: str, addresses: Sequence[int], head_size: int) -> int:
    """The number of values that a thread may load at once: 16 bytes if every address allows it, otherwise one value."""
    width = VECTOR_BYTES // (4 if dtype == "float32" else 2)
    aligned = all(address % VECTOR_BYTES == 0 for address in addresses) and head_size // 2 % width == 0
    return width if aligned else 1


@cache
def host_launcher() -> RopeLibrary:
    """The kernel on this machine's processor, compiled once.

    Raises:
        BackendUnavailable: no C++ compiler.
    """
    return RopeLibrary(compile_for_host())


@cache
def cuda_launcher() -> RopeLibrary:
    """The kernel on this machine's GPU, compiled once by nvcc.

    Raises:
        BackendUnavailable: no nvcc.
    """
    return RopeLibrary(compile_with_nvcc())  # needs a GPU


def rope_on_host(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, *, interleaved: bool = False) -> np.ndarray:
    """Run the CUDA kernel on the processor, with `rope.cu` compiled by the host's compiler.

    Args:
        x: float32, float16 or (with the package ml_dtypes) bfloat16, shape ``(batch, sequence, heads, head_size)``.
        cos, sin: float32, shape ``(rows, head_size / 2)`` with at least `sequence` rows.
        interleaved: as in `reference.rope`.

    Returns:
        an array like `x`.

    Raises:
        ValueError: shapes or dtypes that do not fit.
        BackendUnavailable: no C++ compiler.
    """
    check_shapes(x.shape, cos.shape, sin.shape)
    if cos.dtype != np.float32 or sin.dtype != np.float32:
        raise ValueError(f"cos and sin need the dtype float32, got {cos.dtype} and {sin.dtype}")
    _type_number(x.dtype.name)
    x, cos, sin = (np.ascontiguousarray(array) for array in (x, cos, sin))
    y = np.empty_like(x)
    run = host_launcher()
    run(x.dtype.name, x.ctypes.data, cos.ctypes.data, sin.ctypes.data, y.ctypes.data, x.shape, interleaved=interleaved)
    return y


def _type_number(dtype: str) -> int:
    if dtype not in DTYPES:
        raise ValueError(f"the kernel rotates {', '.join(DTYPES)}, not {dtype}")
    return DTYPES.index(dtype)
