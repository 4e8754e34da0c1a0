"""The runtime's checks against a stand-in for TensorRT 10 and 11, which cannot run here; `tests/gpu` runs them on a real 8.6."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from course_lib.engines import cuda_driver, cuda_graph
from course_lib.engines.trt import memory
from course_lib.errors import BackendUnavailable, EngineError
from tests.doubles import cuda_double, gpu, tensorrt_double
from tests.doubles.libcuda import LibCuda
from tests.runtime import checks
from tests.runtime.material import prepare


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare(tmp_path_factory.mktemp("runtime"), seed=0)


@pytest.fixture(scope="module")
def device() -> Iterator[Any]:
    """A GPU with its driver and pycuda, all on the host."""
    caches = (cuda_driver.capability, cuda_graph.driver, memory._primary)
    patch = pytest.MonkeyPatch()
    patch.setattr(ctypes, "CDLL", lambda *_, **__: LibCuda())
    pycuda: Any = ModuleType("pycuda")
    pycuda.driver = cuda_double
    patch.setitem(sys.modules, "pycuda", pycuda)
    patch.setitem(sys.modules, "pycuda.driver", cuda_double)
    patch.setattr(memory, "_of_this_thread", type(memory._of_this_thread)())
    gpu.reset()
    for cached in caches:
        cached.cache_clear()
    yield gpu
    patch.undo()
    for cached in caches:
        cached.cache_clear()


@pytest.fixture(scope="module", params=["10.16", "11.4"])
def bench(request: pytest.FixtureRequest, device: Any, folder: Path) -> checks.Bench:
    return checks.Bench(tensorrt_double.make(request.param), folder)


@pytest.mark.parametrize("name", checks.CHECKS)
def test_runtime(bench: checks.Bench, name: str) -> None:
    checks.CHECKS[name](bench)
