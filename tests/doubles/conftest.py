from __future__ import annotations

from typing import Any

import pytest

from tests.doubles import gpu, rig, tensorrt_double
from tests.doubles.conform import VERSIONS


@pytest.fixture(autouse=True)
def device() -> gpu.Gpu:
    """A fresh device for every test: one that a test has lost stays lost."""
    return gpu.reset()


@pytest.fixture(params=VERSIONS)
def trt(request: pytest.FixtureRequest) -> Any:
    return tensorrt_double.make(request.param)


@pytest.fixture
def log(trt: Any) -> Any:
    return rig.logger(trt)
