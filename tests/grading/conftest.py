"""Classrooms for tests: a copy of the course's labs in its own folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import nbformat
import pytest

from course_lib import labs
from course_lib.grading.batch.classroom import Classroom
from course_lib.grading.isolation import sandbox
from tests.cli.command import course  # noqa: F401

ROOT = Path(__file__).resolve().parents[2]
LAB = labs.find("lab01")

needs_sandbox = pytest.mark.skipif(bool(sandbox.problem()), reason=f"submissions run in the sandbox only: {sandbox.problem()}")


def new_course(folder: Path) -> Path:
    for name in ("solutions", "labs"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns(*LAB.artifacts, ".ipynb_checkpoints"))
    shutil.copy(ROOT / "nbgrader_config.py", folder)
    return folder


def submit(room: Classroom, student: str, *, first_cell: str = "", reference: Path | None = None, solved: bool = False) -> Path:
    """Hand in the release (or the solution), with a cell in front and the reference's files beside it where asked."""
    room.submit(student, LAB, room.root / ("solutions" if solved else "labs") / LAB.name)
    folder = room.folder / "submitted" / student / LAB.name
    if first_cell:
        path = folder / f"{LAB.name}.ipynb"
        notebook = nbformat.read(path, as_version=4)
        notebook.cells.insert(0, nbformat.v4.new_code_cell(first_cell))
        nbformat.write(notebook, path)
    for name in LAB.artifacts if reference else ():
        shutil.copyfile(reference / name, folder / name)
    return folder


@pytest.fixture(scope="session")
def reference(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("reference")
    LAB.write_reference(folder)
    return folder
