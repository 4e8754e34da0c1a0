"""TensorRT's timing cache in a file: the time of a tactic is measured once per version and GPU, and kept between builds.

The variable COURSE_TIMING_CACHE enables it and names the folder for its files. A sandbox does not pass the variable on, because old
timings decide which tactics are chosen. A learner's build must therefore neither read nor write them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from pathlib import Path
from typing import Any

from course_lib._util.files import write_atomically
from course_lib.engines.cuda import driver

FOLDER_VARIABLE = "COURSE_TIMING_CACHE"


def file_for(trt: Any, backend: str, *, version_compatible: bool = False) -> Path | None:
    """The file for the timings of this version and GPU; None if no timings are kept.

    Version-compatible plans have a file of their own: with timings of another build, TensorRT 8.6.0 ended such a build with
    ``myelinCache.h::deserializeFromBuffer: Myelin error``, on an H100.

    TensorRT for RTX does not keep timings: its functions for timing caches are deprecated and do nothing (a warning in 1.7).
    """
    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder or trt.__name__ == "tensorrt_rtx":
        return None
    kind = "-version_compatible" if version_compatible else ""
    return Path(folder, f"{backend}-{trt.__version__}-{driver.capability()}-{gpu_name()}{kind}.timings")


def gpu_name() -> str:
    """The model of the first GPU, as names of files have it; "" without one."""
    return re.sub(r"[^A-Za-z0-9]+", "_", driver.model())


def use(config: Any, file: Path) -> Any:
    """Start a build from the timings in a file. Keep the returned object, because the builder reads it during the build.

    TensorRT rejects a file that is damaged or from another GPU or version, and then times every tactic again.
    """
    with contextlib.suppress(OSError):
        timings = config.create_timing_cache(file.read_bytes())
        if timings is not None and config.set_timing_cache(timings, ignore_mismatch=False):
            return timings
    timings = config.create_timing_cache(b"")
    return timings if timings is not None and config.set_timing_cache(timings, ignore_mismatch=False) else None


def keep(config: Any, timings: Any, file: Path) -> None:
    """Merge what was timed with what other builds have written meanwhile. A cache that cannot be written fails no build."""
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        with open(f"{file}.lock", "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if file.exists() and (others := config.create_timing_cache(file.read_bytes())) is not None:
                timings.combine(others, ignore_mismatch=False)  # False: the file was of no use, and is replaced
            if (serialized := timings.serialize()) is not None:
                write_atomically(file, bytes(serialized))
