"""Lab 16 against its reference, another network, and mistakes that learners make."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from pydantic import ValidationError

from course_lib import labs
from course_lib.labs import Examiner
from course_lib.labs.lab16_your_network import checks, reference
from course_lib.labs.lab16_your_network.sandboxed import node_times, run_network
from tests.labs.quick import check_solved, examined

LAB = labs.find("lab16")


def test_the_reference_has_full_marks(tmp_path):
    LAB.write_reference(tmp_path)
    check_solved(LAB, LAB.examine(tmp_path, Examiner(seed=4)))


def test_kernels_are_those_of_the_notebooks_builder_whatever_the_grader_has(tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_ENVIRONMENTS", f"trt8={sys.executable}")
    LAB.write_reference(tmp_path)
    with LAB.work(tmp_path, Examiner(builder="tensorrt@trt8", runner="onnxruntime")) as work:
        counted = json.loads((tmp_path / "findings.json").read_text())["kernels"]
        assert work.built("fp32").backend == "tensorrt_rtx" and len(work.built("fp32").layers.kernels) == counted["fp32"]


def source(*changes: tuple[str, str]) -> Callable[[Path], None]:
    """network.py with other text; the engines stay as they are."""

    def write(folder: Path) -> None:
        text = reference.SOURCE
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        (folder / "network.py").write_text(text)

    return write


def copied(of: str, to: str) -> Callable[[Path], None]:
    return lambda folder: (folder / to).write_bytes((folder / of).read_bytes()) and None


def reported(**changes: object) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        values = json.loads((folder / "findings.json").read_text())
        (folder / "findings.json").write_text(json.dumps(values | changes))

    return write


@dataclass(frozen=True)
class Mistake:
    make: Callable[[Path], None]
    task: str
    tier: str
    words: str


MISTAKES = {
    "training mode": Mistake(source((".eval()", "")), "export", "none", "after .eval()"),
    "a network of the course": Mistake(
        source(("return Network().eval()", 'from course_lib.models import classifier\n\n    return classifier("small")')),
        "export",
        "none",
        "expected one that you wrote here",
    ),
    "no signature": Mistake(source(("def signature", "def described")), "export", "none", "give it a method signature()"),
    "another input": Mistake(source(("3, 32, 32)", "3, 48, 48)")), "export", "none", "the recipe's profile has"),
    "FP32 called FP16": Mistake(copied("fp32.onnx", "fp16.onnx"), "precision", "none", "the graph itself must say fp16"),
    "FP16 called INT8": Mistake(copied("fp16.onnx", "int8.onnx"), "precision", "none", "none of"),
    "kernels of another build": Mistake(
        reported(kernels={"fp32": 99, "fp16": 10, "int8": 12}), "findings", "none", "kernels of FP32 is 99"
    ),
    "SQNR of another file": Mistake(reported(sqnr_db={"fp16": 20, "int8": 20}), "findings", "none", "SQNR of FP16 in dB is 20"),
    "a node that is not slow": Mistake(reported(slowest="/stem"), "findings", "partial", "slowest layer is /stem"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake(name, tmp_path):
    mistake = MISTAKES[name]
    LAB.write_reference(tmp_path)
    mistake.make(tmp_path)
    outcome = examined(LAB, tmp_path, mistake.task, Examiner(seed=4))
    assert outcome.tier == mistake.tier and mistake.words in f"{outcome.message} {outcome.hint}", outcome


@pytest.mark.parametrize("text", ["[]", '{"kernels": 3, "sqnr_db": {}, "slowest": ""}', "no"])
def test_findings_of_another_form_are_one_line(text, tmp_path):
    LAB.write_reference(tmp_path)
    (tmp_path / "findings.json").write_text(text)
    outcome = examined(LAB, tmp_path, "findings", Examiner())
    assert outcome.points == 0 and "findings.json" in outcome.message and outcome.message.isprintable()


def test_names_are_shown_in_one_short_line_and_numbers_are_not_made_of_texts():
    names = {"inputs": {"x" * 90: [1, "n\n" * 90]}, "integers": {"\x1b": 2}, "outputs": ["y\n"]}
    values = {**names, "training": False, "weights": 3, "answers": []}
    answered = checks._answered(values)
    assert answered.inputs == {"x" * 80: (1, "n " * 40)} and answered.integers == {"\ufffd": 2} and answered.outputs == ("y",)
    for wrong in ({"training": "no"}, {"training": 0}, {"weights": "7"}, {"integers": {"a": "2"}}, {"inputs": {"a": [True]}}):
        with pytest.raises(ValidationError):
            checks._answered({**values, **wrong})


def test_a_network_with_integers_and_two_inputs(tmp_path):
    """Another right answer, of another kind than the reference."""
    another(tmp_path)
    check_solved(LAB, LAB.examine(tmp_path, Examiner(seed=2)))


def another(folder: Path) -> None:
    """A small classifier of tokens with a bias for each row."""
    from tests.labs.submissions import lab16

    lab16.write(folder)


def test_its_programs_have_an_entry_point():
    """They are started by name, so a renamed function is not seen by a type checker."""
    assert callable(run_network.main) and callable(node_times.shares)
