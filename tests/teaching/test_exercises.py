"""The exercises in lectures: the folded answer passes the check of its cell, and the empty function does not."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import numpy as np
import pytest

from course_lib.teaching.generation.arithmetic import PUBLISHED

# What the cells before an exercise have defined, by lecture.
BEFORE = {
    "15_transformers_that_generate": {"llama": PUBLISHED["Llama 3.1 8B"], "answers": [3, 9, 2, 4, 8, 2, 3, 5]},
    "16_below_eight_bits": {},
}
LECTURES = Path(__file__).resolve().parents[2] / "lectures"
CELLS = {
    name: {cell.id: cell.source for cell in nbformat.read(LECTURES / f"{name}.ipynb", as_version=4).cells} for name in BEFORE
}
EXERCISES = [
    (name, cell)
    for name, cells in CELLS.items()
    for cell in cells
    if cell.startswith("exercise-") and not cell.endswith("-answer")
]


def test_each_of_these_lectures_has_three() -> None:
    assert [name for name, _ in EXERCISES] == [name for name in BEFORE for _ in range(3)]


@pytest.mark.parametrize(("lecture", "exercise"), EXERCISES)
def test_the_answer_passes_and_the_empty_function_does_not(lecture: str, exercise: str) -> None:
    cells = CELLS[lecture]
    check = cells[exercise].partition("\n\n\n")[2]
    answer = re.search(r"<details>.*?```python\n(.*?)```.*?</details>", cells[f"{exercise}-answer"], re.DOTALL)
    assert check and answer
    for code, right in ((answer[1] + check, True), (cells[exercise], False)):
        names = {"np": np, **BEFORE[lecture], "print": lambda said: None}
        exec(code, names)
        assert names["right"] == right
