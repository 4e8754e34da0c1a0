"""Pieces of CUDA C++ in a notebook: lines of a file shown with their numbers, and a text compiled for the host and called."""

from __future__ import annotations

import ctypes
import tempfile
from pathlib import Path

import numpy as np

from course_lib.errors import EngineError
from course_lib.plugins.compilers import compile_for_host


def excerpt(path: Path, first: str, last: str) -> str:
    """Lines of a source file with their numbers: from the first that contains `first` to the next that contains `last`.

    Raises:
        ValueError: no such line.
    """
    lines = path.read_text(encoding="utf-8").splitlines()
    begin = next((i for i, line in enumerate(lines) if first in line), None)
    if begin is None:
        raise ValueError(f"no line of {path.name} contains {first!r}")
    end = next((i for i in range(begin, len(lines)) if last in lines[i]), None)
    if end is None:
        raise ValueError(f"no line of {path.name} from {begin + 1} on contains {last!r}")
    numbered = [f"{i + 1:4}  {lines[i]}".rstrip() for i in range(begin, end + 1)]
    return "\n".join([f"{path.parent.name}/{path.name}", *numbered])


def call_on_host(source: str, function: str, *arguments: np.ndarray | int | float) -> None:
    """Compile CUDA C++ for this machine's processor and call one of its ``extern "C"`` functions.

    The function runs in this process: give it only what you would run yourself.

    Args:
        source: includes ``cuda_on_host.h`` and launches with ``cudaLaunchKernelEx``.
        function: returns an int, 0 if all went well.
        arguments: arrays are handed over as pointers, whole numbers as int64_t, others as float.

    Raises:
        BackendUnavailable: no C++ compiler.
        BuildError: the compiler refused the source.
        EngineError: the function returned an error, or there is none of this name.
        ValueError: an array that is not contiguous.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "snippet.cu"
        file.write_text(source, encoding="utf-8")
        library = ctypes.CDLL(str(compile_for_host(file)))
    if not hasattr(library, function):
        raise EngineError(f'the source has no function extern "C" {function}')
    status = getattr(library, function)(*map(_argument, arguments))
    if status != 0:
        raise EngineError(f"{function} returned the CUDA error {status}")


def _argument(value: np.ndarray | int | float) -> ctypes.c_void_p | ctypes.c_int64 | ctypes.c_float:
    if isinstance(value, np.ndarray):
        if not value.flags.c_contiguous:
            raise ValueError("a kernel takes contiguous arrays: pass np.ascontiguousarray(array)")
        return ctypes.c_void_p(value.ctypes.data)
    return ctypes.c_int64(value) if isinstance(value, int) else ctypes.c_float(value)
