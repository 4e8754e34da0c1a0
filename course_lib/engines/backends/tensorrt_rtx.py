"""TensorRT for RTX as a backend of the course: TensorRT's Python interface, and builds that need no GPU."""

from __future__ import annotations

import platform
from typing import ClassVar

from course_lib.engines.backend import Availability
from course_lib.engines.backends.tensorrt.backend import NO_GPU, TensorRT
from course_lib.engines.cuda import driver

_CAPABILITIES = {"sm75", "sm80", "sm86", "sm89", "sm120", "sm121"}


class TensorRTForRTX(TensorRT):
    """Built and run by the same code as TensorRT, on other GPUs."""

    name: ClassVar[str] = "tensorrt_rtx"
    distributions: ClassVar[tuple[str, ...]] = ("tensorrt-rtx-cu13", "tensorrt_rtx")
    builder_rank: ClassVar[int | None] = 1
    runner_rank: ClassVar[int | None] = 1

    def availability(self) -> Availability:
        """See `Backend.availability`. It builds without a GPU, and runs on those that TensorRT for RTX supports."""
        found = self.version()
        if not found:
            linux = platform.system() == "Linux" and platform.machine() == "x86_64"
            if not linux:
                return self.absent("TensorRT for RTX is installed only on x86-64 Linux")
            return self.absent("not installed", "pip install tensorrt-rtx-cu13")
        here = driver.capability()
        reason = "" if here in _CAPABILITIES else f"TensorRT for RTX does not run on {here}" if here else NO_GPU
        return Availability(self.name, found, "", reason)
