"""A learner's check where the reference is absent: what needs it is open, and everything else is examined."""

from __future__ import annotations

import ast
import pickle
from pathlib import Path

import numpy as np
import pytest

import course_lib
from course_lib.errors import EngineError, ReferenceAbsent
from course_lib.grading.isolation import withheld as withheld_files
from course_lib.labs import Examination, Examiner, Lab, Task, find, withheld
from course_lib.labs.framework.criteria import HALF, NO_REFERENCE, at_least, holds
from course_lib.labs.framework.lab import absent
from course_lib.labs.framework.racing import Pace, Tiers

TIERS = Tiers(full=Pace(of_reference=0.8, over_eager=1.5), partial=Pace(of_reference=0.5, over_eager=1.1))


def alone(work):
    yield holds("right", True)


def compared(work):
    yield at_least("SQNR", 40.0, 30.0, HALF, unit="dB")
    withheld.write(work.folder)


class Two(Lab):
    """One task that needs the reference, and one that does not."""

    name = "lab43_two"
    title = "Lab 43: two tasks"
    tasks = (Task("alone", "Alone", 2, alone), Task("compared", "Compared", 3, compared))

    def write_reference(self, folder: Path, *, opset: int | None = None) -> None:
        withheld.write(folder)


def test_a_task_that_needs_the_reference_is_open_and_the_other_is_judged(tmp_path):
    found = Two().examine(tmp_path, Examiner())
    assert [(one.tier, one.points, one.code, one.mark) for one in found.outcomes] == [
        ("full", 2, "", "passed"),
        ("inconclusive", 0, NO_REFERENCE, "open"),
    ]
    assert found.outcomes[1].message == "SQNR: 40 dB. Not compared with the reference yet: the grader does that."
    assert (found.points, found.open_points, found.max_points) == (2, 3, 5)
    assert Two().check("compared", tmp_path).code == NO_REFERENCE
    lost = Examination((Two().outcome("compared", "none", EngineError("it failed", code=NO_REFERENCE)),))
    assert (lost.open_points, lost.outcomes[0].mark) == (0, "not yet"), "lost points are never open"


def test_a_placeholder_answers_python_but_no_lab():
    assert absent(withheld) and not hasattr(withheld, "__wrapped__")
    with pytest.raises(ReferenceAbsent):
        withheld.write  # noqa: B018


def test_a_loaded_placeholder_hides_no_name_of_another_module():
    """As pickle searches for the module of a function: through everything that is loaded."""

    def somewhere() -> None: ...

    somewhere.__module__ = None
    assert pickle.whichmodule(somewhere, "no_such_name") == "__main__"
    assert getattr(withheld, "write", None) is None and not hasattr(withheld, "write")


def test_nothing_imports_a_name_out_of_a_reference():
    """In the bundle, such an import ends with Python's words in place of `ReferenceAbsent`, which a learner's check waits for."""
    package = Path(course_lib.__file__).parent
    references = set(withheld_files.references(package))
    modules = {".".join(file.relative_to(package.parent).with_suffix("").parts) for file in references}
    assert "course_lib.labs.lab02_fusion.reference" in modules
    found = [
        f"{file.relative_to(package)}:{node.lineno}"
        for file in sorted({*package.rglob("*.py")} - references)
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module in modules
    ]
    assert not found


@pytest.mark.parametrize(("over_eager", "tier", "code"), [(2.0, "inconclusive", NO_REFERENCE), (0.9, "none", "")])
def test_a_race_without_the_reference_still_compares_with_pytorch(over_eager, tier, code):
    spread = 1 + 0.01 * np.random.default_rng(0).permutation(np.linspace(-1, 1, 200))
    yours = np.full(200, 10.0)
    latencies = {"eager": over_eager * yours * spread, "yours": yours}
    found = find("lab01").decided("speed", TIERS.criteria(latencies, "hint"))
    assert (found.tier, found.points, found.code) == (tier, 0, code)
    met = {one.name: one.met for one in found.criteria}
    assert met["speed over the reference engine"] is None and met["speed over PyTorch eager"] is (over_eager > 1)
