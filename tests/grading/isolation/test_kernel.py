"""What a notebook that was stopped leaves behind in the grader's process."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from course_lib import labs
from course_lib.grading.isolation import sandbox
from course_lib.grading.isolation.kernel import SandboxedExecute
from tests.grading.conftest import needs_sandbox


def run(
    folder: Path, cell: str, assignment: str = "lab01", *, trusted: bool = True, **limits: Any
) -> tuple[list[str], dict[str, Any]]:
    """Names of the errors that a notebook of one cell ends with, and what later steps get; the cells are this test's own."""
    folder.mkdir()
    resources = {"metadata": {"path": str(folder)}, "nbgrader": {"assignment": assignment, "notebook": "none"}}
    notebook = new_notebook(cells=[new_code_cell(cell)])
    notebook, after = SandboxedExecute(trusted=trusted, max_output_bytes=100_000, **limits).preprocess(notebook, resources)
    return [output.ename for output in notebook.cells[0].outputs if output.output_type == "error"], after


def test_a_flood_leaves_nothing_that_speaks_later(tmp_path: Path, caplog) -> None:
    """nbclient's task that looks after the kernel went on without one, and its error was reported while something else was compiled."""
    assert run(tmp_path / "flood", "print('x' * 1_000_000)")[0] == ["Stopped"]
    assert run(tmp_path / "next", "import time; time.sleep(2.5)")[0] == []
    gc.collect()
    assert "never retrieved" not in caplog.text


def test_a_run_that_ends_says_so_once(tmp_path: Path) -> None:
    cells = [new_code_cell(source) for source in ("1", "import os; os._exit(1)", "2", "3")]
    resources = {"metadata": {"path": str(tmp_path)}, "nbgrader": {"assignment": "lab01", "notebook": "none"}}
    notebook, _ = SandboxedExecute(trusted=True).preprocess(new_notebook(cells=cells), resources)
    kinds = [[output.output_type for output in cell.outputs] for cell in notebook.cells]
    assert kinds == [["execute_result"], ["error"], [], []]
    assert "The cells below did not run." in notebook.cells[1].outputs[0].traceback[0]


def test_the_next_code_cell_says_that_the_time_is_up(tmp_path: Path) -> None:
    """A text before it took the reason, which no cell showed."""
    cells = [new_markdown_cell("1"), new_markdown_cell("2"), new_code_cell("3"), new_markdown_cell("4"), new_code_cell("5")]
    resources = {"metadata": {"path": str(tmp_path)}, "nbgrader": {"assignment": "lab01", "notebook": "none"}}
    notebook, _ = SandboxedExecute(trusted=True, total_timeout_s=0.0).preprocess(new_notebook(cells=cells), resources)
    errors = [[output.evalue for output in cell.get("outputs", [])] for cell in notebook.cells]
    assert errors == [[], [], ["the notebook ran longer than 0 s"], [], []]


def test_a_file_above_its_limit_is_called_that(tmp_path: Path) -> None:
    """It was left out after the notebook had run, and the judge said that it was missing."""
    lab = labs.find("lab10")
    (name, limit), *_ = lab.artifacts.items()
    errors, resources = run(tmp_path / "home", f"open({name!r}, 'wb').write(bytes({limit + 100}))", lab.name)
    assert errors == []
    assert not (tmp_path / "home" / name).exists()
    assert resources["from_notebook"].too_large == f"{name} is larger than {limit:,} bytes, the largest size that is taken"


@needs_sandbox
def test_a_sandbox_that_does_not_start_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another submission may have used up for a moment what it needs. The notebook's cells failed, and its files were missing."""
    boxes, usual = [], sandbox.Sandbox

    def box(**fields: Any) -> sandbox.Sandbox:
        boxes.append(fields)
        return usual(**fields, readable=() if len(boxes) > 2 else (Path("/not/there"),))

    monkeypatch.setattr(sandbox, "Sandbox", box)
    assert run(tmp_path / "home", "print('done')", trusted=False)[0] == []
    assert len(boxes) == 3


# Counts its runs in a file that is not in its scratch folder.
_DIES = "import os, pathlib, time; file = pathlib.Path({file!r}); file.open('a').write('x'); {do}; os._exit(1)"


@pytest.mark.parametrize(
    ("do", "runs"),
    [("pass", "xx"), pytest.param("time.sleep(7)", "x", marks=pytest.mark.slow)],
    ids=["at once", "late"],
)
def test_a_notebook_whose_kernel_died_runs_once_more_if_there_is_time(tmp_path: Path, do: str, runs: str) -> None:
    """A machine without memory may have killed it, and a learner who hands in the notebook alone would have no files."""
    errors, _ = run(tmp_path / "home", _DIES.format(file=str(tmp_path / "runs"), do=do), total_timeout_s=12.0)
    assert "Stopped" in errors and (tmp_path / "runs").read_text() == runs
