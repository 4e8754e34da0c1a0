"""`course release` compares the grade cells of a solution with the tasks of its lab."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from course_lib.errors import CourseError
from course_lib.grading.batch.classroom import Classroom
from course_lib.grading.nbgrader import learner_version
from course_lib.grading.nbgrader.learner_version import check_grade_cells
from tests.labs.framework.toy_lab import lab

WRITTEN = {"grade": True, "solution": True, "grade_id": "written", "points": 2, "locked": False}
SOLUTION = {"grade": False, "solution": True, "grade_id": "answer-solution", "locked": False}


def _check_cell(grade_id: str = "answer", points: float = 2) -> dict[str, object]:
    return {"grade": True, "solution": False, "grade_id": grade_id, "points": points, "locked": True}


def _solution(root: Path, *metadata: dict[str, object]) -> Path:
    """The solution of the lab that docs/contributing.md shows, with cells that have this metadata of nbgrader."""
    cells = []
    for one in metadata:
        make = nbformat.v4.new_markdown_cell if one["grade_id"] == "written" else nbformat.v4.new_code_cell
        cells.append(make("", metadata={"nbgrader": {"schema_version": 3, "task": False, **one}}))
    path = root / "solutions" / lab.name / f"{lab.name}.ipynb"
    path.parent.mkdir(parents=True)
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    return path


def test_the_right_cells_are_released(tmp_path):
    _solution(tmp_path, SOLUTION, _check_cell(), WRITTEN)
    assert learner_version.release(lab, tmp_path) == tmp_path / "labs" / lab.name
    assert learner_version.stale(lab, tmp_path) == []


def test_an_unsolved_cell_says_which_task_it_is(tmp_path):
    path = _solution(tmp_path, SOLUTION, {**SOLUTION, "grade_id": "more"}, {**SOLUTION, "grade_id": "last"}, _check_cell())
    notebook = nbformat.read(path, as_version=4)
    first, more, last, check = notebook.cells
    first.source = more.source = "def f():\n    ### BEGIN SOLUTION\n    return 1\n    ### END SOLUTION"
    first_task, second_task = map(
        nbformat.v4.new_markdown_cell, ("# Lab\n## Task 1: one", "Words.\n\n## Task 2: two (3 points)\nAs in Task 1.")
    )
    notebook.cells = [first, first_task, more, second_task, last, check]
    nbformat.write(notebook, path)
    released = nbformat.read(learner_version.release(lab, tmp_path) / path.name, as_version=4).cells
    stub = 'raise NotImplementedError("{} is not solved yet")  # your code here'
    assert released[0].source == "def f():\n    " + stub.format("This task")
    assert released[2].source == "def f():\n    " + stub.format("Task 1")
    assert released[4].source == stub.format("Task 2")


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        (
            [_check_cell("answr")],
            "no cell for the task 'answer'; the cell 'answr' is not a task of the lab",
        ),
        ([_check_cell(points=3)], "the cell 'answer' has 3 points, the task 2"),
        ([WRITTEN, SOLUTION], "no cell for the task 'answer'. Change `grade_id` and `points`"),
        ([_check_cell(), _check_cell("bonus", 1)], "the cell 'bonus' is not a task of the lab"),
        ([{**_check_cell(), "solution": True}], "no cell for the task 'answer'"),
    ],
)
def test_other_cells_are_rejected_with_their_names(tmp_path, cells, said):
    """A wrong id passed `course release`, and failed `course grade` with advice that could not help."""
    _solution(tmp_path, *cells)
    (tmp_path / "nbgrader_config.py").touch()
    for step in (
        lambda: learner_version.release(lab, tmp_path),
        lambda: learner_version.stale(lab, tmp_path),
        lambda: Classroom(tmp_path)._registered(lab),
    ):
        with pytest.raises(CourseError) as caught:
            step()
        assert said in str(caught.value) and "\n" not in str(caught.value)
    assert not (tmp_path / "labs").exists()


def test_a_notebook_that_is_missing_or_none(tmp_path):
    path = _solution(tmp_path, _check_cell())
    path.write_text("{}")
    with pytest.raises(CourseError, match="is not a notebook with nbgrader's metadata"):
        check_grade_cells(lab, tmp_path)
    path.rename(path.with_name("lab.ipynb"))
    with pytest.raises(CourseError, match="does not exist: the notebook has the name of the lab"):
        check_grade_cells(lab, tmp_path)
