"""What several tests of plugins need."""

import pytest

from course_lib.errors import BackendUnavailable
from course_lib.plugins import compilers


@pytest.fixture(scope="package")
def nvcc() -> str:
    """The path of NVIDIA's compiler; without one its tests are skipped, with the reason."""
    try:
        return compilers.nvcc()
    except BackendUnavailable as absent:
        pytest.skip(str(absent))
