"""What several tests of scripts need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from course_lib.engines.backends.tensorrt import memory
from course_lib.engines.cuda import driver
from course_lib.standin import gpu
from tests.doubles.rig import install

CACHES = (driver.capability, memory._primary)


@pytest.fixture
def trt() -> Iterator[Any]:
    """A stand-in for TensorRT 10 with its driver, pycuda and a GPU, all on the host."""
    patch = pytest.MonkeyPatch()
    module = install(patch, "10.16")
    patch.setattr(memory, "_of_this_thread", type(memory._of_this_thread)())
    patch.setattr("course_lib.engines.Backend.version", lambda *_: "10.16")  # it has no package's metadata
    for cached in CACHES:
        cached.cache_clear()
    gpu.reset()
    yield module
    patch.undo()
    for cached in CACHES:
        cached.cache_clear()
