"""Python code run over NVIDIA's real bindings of a version, with empty libraries behind them: plugins can be asked, engines not built."""

from __future__ import annotations

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

from course_lib.errors import CourseError
from course_lib.migration.bindings import RELEASES, BindingsUnavailable, download, make_libraries

TIME_LIMIT_S = 60.0


def on_bindings(*functions: Callable[..., Any], version: str = "10.16") -> str:
    """Call the last function with the binding module of a version, in a process of its own.

    A process of its own, because only one TensorRT can be imported into a process. It sees the functions' sources only, so each
    of them imports what it needs, and nothing else of the caller exists there.

    Args:
        functions: the last one takes the module ``tensorrt``; it may call the others.
        version: a key of `bindings.RELEASES`.

    Returns:
        what was printed, or, on a machine that cannot have the bindings, one line that says why.

    Raises:
        ValueError: no such version, or no function.
        CourseError: the code raised an exception, of which the text is the last line, or it did not end in time.
    """
    if version not in RELEASES or not functions:
        raise ValueError(f"need a function and a version of {', '.join(RELEASES)}, got {len(functions)} and {version!r}")
    try:
        folder = Path(_prepared(version).name)
    except BindingsUnavailable as absent:
        return f"not run here: {absent}"
    sources = [textwrap.dedent(inspect.getsource(function)) for function in functions]
    head = f"from __future__ import annotations\nimport sys\nimport {RELEASES[version].module} as trt\nsys.modules['tensorrt'] = trt\n"
    paths = os.pathsep.join((str(folder), str(Path(__file__).resolve().parents[2])))
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
