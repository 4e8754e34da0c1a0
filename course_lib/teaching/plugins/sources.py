"""CUDA C++ in a notebook: numbered lines, code compiled for the host, and plugins over real bindings."""

from __future__ import annotations

import ctypes
import inspect
import os
import subprocess
import sys
import tempfile
import textwrap
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from course_lib.errors import CourseError, EngineError
from course_lib.migration.tables.bindings import RELEASES, BindingsUnavailable, download, make_libraries
from course_lib.plugins.compilers import compile_for_host


def excerpt(path: Path, first: str, last: str) -> str:
    """Numbered lines of a source file, from the first line that contains `first` to the next one that contains `last`.

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
        arguments: arrays are passed as pointers, whole numbers as int64_t, others as float.

    Raises:
        BackendUnavailable: no C++ compiler.
        BuildError: the compiler rejected the source.
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


TIME_LIMIT_S = 60.0


def on_bindings(*functions: Callable[..., Any], version: str = "10.16") -> str:
    """Call the last function with the binding module of a version, in its own process.

    The process is separate because only one TensorRT can be imported into a process. It receives only the sources of the
    functions, so each function must import what it needs.

    Args:
        functions: the last one takes the module ``tensorrt``; it may call the others.
        version: a key of `bindings.RELEASES`.

    Returns:
        the printed text, or one line with the reason if this machine cannot have the bindings.

    Raises:
        CourseError: the code raised an exception, whose last line is the message, or it did not end in time.
    """
    try:
        folder = Path(_prepared(version).name)
    except BindingsUnavailable as absent:
        return f"not run here: {absent}"
    sources = [textwrap.dedent(inspect.getsource(function)) for function in functions]
    head = f"from __future__ import annotations\nimport sys\nimport {RELEASES[version].module} as trt\nsys.modules['tensorrt'] = trt\n"
    paths = os.pathsep.join((str(folder), str(Path(__file__).resolve().parents[3])))
    command = [sys.executable, "-c", "\n".join([head, *sources, f"{functions[-1].__name__}(trt)"])]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder), "PYTHONPATH": paths}
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=TIME_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise CourseError(f"on the bindings of TensorRT {version}: no end after {TIME_LIMIT_S:.0f} s") from None
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or [f"the process ended with {done.returncode}"]
        raise CourseError(f"on the bindings of TensorRT {version}: {said[-1]}")
    return done.stdout.rstrip()


@cache
def _prepared(version: str) -> tempfile.TemporaryDirectory[str]:
    """A folder with the unpacked wheel and empty libraries; it lives as long as this process."""
    release = RELEASES[version]
    wheel = download(release)
    folder = tempfile.TemporaryDirectory(prefix="course-bindings-")
    make_libraries(release.libraries, Path(folder.name))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder.name)
    return folder
