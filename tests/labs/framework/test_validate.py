"""nbgrader's "Validate": a check that did not pass is an error there, because it takes every other cell for a success."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import nbformat
import pytest
from nbgrader.validator import Validator

from course_lib import labs
from course_lib.errors import CourseError
from course_lib.labs.framework.criteria import HALF, NO_REFERENCE, Criterion, Outcome

LAB = labs.find("lab01")
RELEASED = Path(__file__).resolve().parents[3] / "labs" / LAB.name / f"{LAB.name}.ipynb"


def test_validate_fails_for_a_wrong_profile_and_for_files_that_are_missing(tmp_path: Path) -> None:
    LAB.write_reference(tmp_path)
    (tmp_path / "wrong").mkdir()
    recipe = (tmp_path / "recipe.toml").read_text()
    (tmp_path / "wrong" / "recipe.toml").write_text(recipe.replace("[32,", "[8,"))
    (tmp_path / "wrong" / "model.onnx").write_bytes((tmp_path / "model.onnx").read_bytes())
    (check,) = (cell for cell in nbformat.read(RELEASED, 4).cells if cell.source.startswith('lab.check("profile")'))
    cells = [nbformat.v4.new_code_cell('from course_lib.labs import find\nlab = find("lab01")')]
    for number, folder in enumerate((".", "wrong", "absent")):
        known = {**check.metadata["nbgrader"], "grade_id": f"profile{number}"}
        del known["checksum"]  # of the released cell
        cells.append(nbformat.v4.new_code_cell(f'lab.check("profile", "{folder}")', metadata={"nbgrader": known}))
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "lab.ipynb")
    failed = Validator().validate(str(tmp_path / "lab.ipynb"))["failed"]
    assert [cell["source"] for cell in failed] == ['lab.check("profile", "wrong")', 'lab.check("profile", "absent")']
    assert "your profile covers 1 to 8" in failed[0]["raw_error"] and "model.onnx is missing" in failed[1]["raw_error"]


@pytest.mark.parametrize(
    ("tier", "met", "passed"),
    [
        ("full", True, True),
        ("partial", False, False),
        ("none", False, False),
        ("inconclusive", None, False),
        ("open", True, True),
        ("open", None, True),
        ("open", False, False),
    ],
)
def test_what_passes(tier: str, met: bool | None, passed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    code = NO_REFERENCE if tier == "open" else ""
    outcome = LAB.outcome("speed", "inconclusive" if tier == "open" else tier, "what was found.", "Where to look.", code=code)
    outcome = replace(outcome, criteria=(Criterion("speed", "1.2x", "at least 1.15x", met, HALF),))

    class Examined:
        outcomes = (outcome,)

    monkeypatch.setattr(type(LAB), "examine", lambda *_, **__: Examined)
    assert LAB.check("speed") is outcome, "a notebook shows it"
    monkeypatch.setenv("NBGRADER_EXECUTION", "validate")
    if passed:
        assert LAB.check("speed") is outcome
    else:
        with pytest.raises(CourseError, match=r"Faster than PyTorch: .*\. what was found\. Where to look\."):
            LAB.check("speed")
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    assert isinstance(LAB.check("speed"), Outcome) and LAB.check("speed") is not outcome, "the grader examines the files"
