"""Lab 03 gives a hint for what its judge saw, not for a word in a learner's error."""

from __future__ import annotations

import pytest

from course_lib import labs
from course_lib.labs import Examiner
from tests.labs import quick

LAB = labs.find("lab03")
SIGNATURES = {
    "timing": ("timing.py", "fastest(tactics, run, budget)", "in the notebook"),
    "choice": ("choice.py", "choose(layers, reformats, workspace)", "in the notebook"),
    "budget": ("budget.py", "worth_measuring(layers, budget)", "in the notebook"),
}
BODIES = (
    'raise ValueError("the budget is over, and so is the workspace")',
    'raise KeyError("the budget is 3 ms", "workspace")',
    'raise ValueError("ImportError the file may import numpy: it defines no function")',
    "class workspace_budget(Exception): pass\n    raise workspace_budget",
)


@pytest.mark.parametrize("task", SIGNATURES)
@pytest.mark.parametrize("body", BODIES)
def test_the_words_of_an_error_are_not_read(task, body, tmp_path):
    file, signature, hint = SIGNATURES[task]
    (tmp_path / file).write_text(f"def {signature}:\n    {body}\n")
    outcome = quick.examined(LAB, tmp_path, task, Examiner(seed=3))
    assert outcome.points == 0 and "failed: line" in outcome.message and hint in outcome.hint, outcome
