from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.doubles import cuda_double, gpu, rig, tensorrt_double
from tests.doubles.conform import VERSIONS


@pytest.fixture(autouse=True)
def device() -> Iterator[gpu.Gpu]:
    """A fresh device for every test, for one that a test has lost stays lost, with a context."""
    cuda_double.Context().push()
    yield gpu.reset()
    cuda_double.Context.pop()


@pytest.fixture(params=VERSIONS)
def trt(request: pytest.FixtureRequest) -> Any:
    return tensorrt_double.make(request.param)


@pytest.fixture
def log(trt: Any) -> Any:
    return rig.logger(trt)
