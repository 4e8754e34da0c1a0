"""The folded answer of each exercise of lecture 16 passes the check below its empty function."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import numpy as np
import pytest

LECTURE = Path(__file__).resolve().parents[3] / "lectures" / "16_below_eight_bits.ipynb"
CELLS = {cell.id: cell.source for cell in nbformat.read(LECTURE, as_version=4).cells}
EXERCISES = [name for name in CELLS if name.startswith("exercise-") and not name.endswith("-answer")]


def test_there_are_three() -> None:
    assert len(EXERCISES) == 3


@pytest.mark.parametrize("exercise", EXERCISES)
def test_the_answer_passes_and_the_empty_function_does_not(exercise: str) -> None:
    check = CELLS[exercise].partition("\n\n\n")[2]
    answer = re.search(r"<details>.*?```python\n(.*?)```.*?</details>", CELLS[f"{exercise}-answer"], re.DOTALL)
    assert check and answer
    for code, right in ((answer[1] + check, True), (CELLS[exercise], False)):
        names = {"np": np, "print": lambda said: None}
        exec(code, names)
        assert names["right"] == right
