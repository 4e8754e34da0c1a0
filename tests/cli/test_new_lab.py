"""`course new-lab` writes a lab whose own tests pass at once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from course_lib.cli.new_lab import write
from course_lib.errors import CourseError

ROOT = Path(__file__).resolve().parents[2]
CLONE = (
    "course_lib",
    "tests",
    "solutions",
    "labs",
    "lectures",
    "docs",
    "pyproject.toml",
    "README.md",
    "Makefile",
    "nbgrader_config.py",
)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The course's files, as links but for the folders that the command writes to."""
    for name in CLONE:
        source = ROOT / name
        if name in ("course_lib", "tests"):
            shutil.copytree(source, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "data"), symlinks=True)
        elif name in ("solutions", "labs"):
            (tmp_path / name).mkdir()
        else:
            (tmp_path / name).symlink_to(source)
    return tmp_path


@pytest.mark.slow  # a copy of the course, and its tests in a process of their own
def test_a_new_lab_is_green(clone: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(clone), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "course_lib", "new-lab", "lab42_batches"]
    made = subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    assert (clone / "labs/lab42_batches/lab42_batches.ipynb").is_file()
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/labs/test_lab42.py"]
    done = subprocess.run(tests, cwd=clone, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("batches", "not the name of a lab: expected two digits and words"),
        ("lab4_batches", "not the name of a lab"),
        ("lab01_other", "lab01_first_engine has the number 01"),
    ],
)
def test_another_name_is_one_line(name: str, words: str) -> None:
    with pytest.raises(CourseError, match=words):
        write(name, ROOT)
