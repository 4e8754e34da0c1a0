"""What a notebook that was stopped leaves behind in the grader's process."""

from __future__ import annotations

import gc
from pathlib import Path

from nbformat.v4 import new_code_cell, new_notebook

from course_lib.grading.isolation.kernel import SandboxedExecute


def run(folder: Path, cell: str) -> list[str]:
    """Names of the errors that a notebook of one cell ends with; the cells are this test's own."""
    folder.mkdir()
    resources = {"metadata": {"path": str(folder)}, "nbgrader": {"assignment": "none", "notebook": "none"}}
    notebook = new_notebook(cells=[new_code_cell(cell)])
    notebook, _ = SandboxedExecute(trusted=True, max_output_bytes=100_000).preprocess(notebook, resources)
    return [output.ename for output in notebook.cells[0].outputs if output.output_type == "error"]


def test_a_flood_leaves_nothing_that_speaks_later(tmp_path: Path, caplog) -> None:
    """nbclient's task that looks after the kernel went on without one, and its error was reported while something else was compiled."""
    assert run(tmp_path / "flood", "print('x' * 1_000_000)") == ["Stopped"]
    assert run(tmp_path / "next", "import time; time.sleep(2.5)") == []
    gc.collect()
    assert "never retrieved" not in caplog.text
