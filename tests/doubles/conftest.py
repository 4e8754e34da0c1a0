from collections.abc import Iterator
from typing import Any

import pytest

from course_lib.standin import cuda_driver, gpu, tensorrt_module
from course_lib.standin.conforming import VERSIONS
from tests.doubles import rig


@pytest.fixture(autouse=True)
def device() -> Iterator[gpu.Gpu]:
    """A fresh device for every test, for one that a test has lost stays lost, with a context."""
    cuda_driver.Context().push()
    yield gpu.reset()
    cuda_driver.Context.pop()


@pytest.fixture(params=VERSIONS)
def trt(request: pytest.FixtureRequest) -> Any:
    return tensorrt_module.make(request.param)


@pytest.fixture
def log(trt: Any) -> Any:
    return rig.logger(trt)
