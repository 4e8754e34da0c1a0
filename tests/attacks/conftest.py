"""Fixtures that the attacks share with the other tests of grading."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.grading.conftest import reference  # noqa: F401


@pytest.fixture(scope="module")
def course_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Removed at the end, and not by Python: submissions have folders so deep that pytest's own cleaning, two runs later, fails."""
    folder = tmp_path_factory.mktemp("course")
    yield folder
    subprocess.run(["rm", "-rf", str(folder)], check=True)
