"""Lab 11 against its reference, another right answer and mistakes that learners make, by the released Torch-TensorRT."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from course_lib import labs
from course_lib.engines.backends.torch_tensorrt.blocks import module_blocks
from course_lib.grading.judge.judging import judge
from course_lib.labs import Examiner
from course_lib.labs.lab11_torch_tensorrt import checks, given, lab, reference
from tests.labs import quick
from tests.labs.quick import check_solved, judged_reference
from tests.labs.submissions import edit, mistakes, table

LAB = labs.find("lab11")
MADE = table("lab11")
MISTAKES = mistakes(MADE["mistakes"])


def examined(folder: Path, task: str):
    return quick.examined(LAB, folder, task, Examiner(seed=3))


def test_the_judge_gives_the_reference_full_marks(tmp_path):
    judged_reference(LAB, tmp_path)


def test_another_right_answer(tmp_path):
    LAB.write_reference(tmp_path)
    edit(tmp_path, MADE["another"]["changes"])
    check_solved(LAB, LAB.examine(tmp_path, Examiner(seed=1)))


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_is_named(name, tmp_path):
    LAB.write_reference(tmp_path)
    quick.check_mistake(LAB, tmp_path, MISTAKES[name], Examiner(seed=3))


# What the judge makes of recorded answers, without a process


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    """What the process sent about the reference: one median, one engine."""
    blocks = {
        "blocks": [
            {
                "in_tensorrt": True,
                "operators": ["aten.relu.default"],
                "name": "_run_on_acc_0",
                "plan_bytes": 5,
                "layers": {"layers": []},
            }
        ],
        "release": "2.13.0",
        "relative_error": None,
    }
    answer = {**checks.learner_code.encoded(np.zeros((1, 10), np.float32)), "type": "float32"}
    return {"registered": [checks.OPERATOR], "model": {"blocks": blocks, "answers": [answer]}, "border": ""}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"min": 2}, "range of batch sizes is 2 to 24"),
        ({"max": 16}, "range of batch sizes is 1 to 16"),
        ({"max": 64}, "range of batch sizes is 1 to 64"),
        ({"opt": 16}, "opt is 16, all points need the most frequent batch size"),
    ],
)
def test_the_range_follows_from_the_traffic(change, message, recorded):
    batch = {"min": 1, "opt": 8, "max": 24, **change}
    found = checks.read({**recorded, "border": {"error": "BuildError model is not fully supported"}}, lab.MODEL)
    outcome = LAB.decided("settings", list(checks.settings(batch, given.TRAFFIC, found)))
    assert message in outcome.message and outcome.tier == ("partial" if "opt" in change else "none")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[batch]\nmin = 8\nopt = 1\nmax = 24\n", "min <= opt <= max"),
        ("batch = 3\n", "needs integers"),
        ("[other]\n", "expected [batch] and [compile]"),
        ("", "still empty"),
    ],
)
def test_settings_of_another_form(text, words, tmp_path):
    (tmp_path / "settings.toml").write_text(text)
    assert words in examined(tmp_path, "settings").message


def test_constant_and_infinite_logits_are_named():
    want = [np.random.default_rng(0).standard_normal((4, 10))]
    assert "the same for each image" in checks._error([np.zeros((4, 10))], want)[1]
    assert "not finite" in checks._error([np.full((4, 10), np.inf)], want)[1]
    assert checks._error([want[0][:2]], want)[0] == np.inf


@pytest.mark.parametrize(
    ("mistaken", "words"),
    [
        (lambda ordered, size, dim: np.take(ordered, [size // 2], dim), "found the upper of the two middle values"),
        (lambda ordered, size, dim: np.take(ordered, [0], dim), "found the smallest value"),
        (lambda ordered, size, dim: np.take(ordered, [size - 1], dim), "found the largest value"),
        (lambda ordered, size, dim: np.take(ordered, [size // 2 - 1], dim), "which k belongs to an odd size"),
        (lambda ordered, size, dim: np.take(ordered, range((size + 1) // 2), dim), "How many does TopK return?"),
    ],
)
def test_a_usual_median_is_named(mistaken, words):
    asked = checks.cases(np.random.default_rng(0))
    answers = []
    for x, dim, keepdim, _ in (case.arguments for case in asked):
        found = mistaken(np.sort(x, dim), x.shape[dim], dim)
        answers.append(found if keepdim or found.shape[dim] > 1 else found.squeeze(dim))
    values, indices = list(checks.converter(checks.Found((checks.OPERATOR,), medians=tuple(answers)), asked))[1:3]
    assert values.met is False and words in values.found and indices.met is False


# The given module


def test_the_given_module_has_five_blocks_and_overflows_in_fp16():
    found = module_blocks(given.reader().half(), {"rows": (given.BATCH, given.ROWS, 32)}, min_block_size=1)
    assert len(found.blocks) == 5 and found.in_pytorch == ("aten.cumprod.default", "aten.median.dim")
    drawn, rows = given.weights(np.random.default_rng(0)), given.inputs(np.random.default_rng(1))
    with torch.no_grad():
        logits = given.reader().half()(rows.half())
    assert float((logits - given.logits(drawn, rows)).abs().max()) > 1 and float(logits.std(0).max()) == 0


@pytest.mark.parametrize("seed", range(3))
def test_the_bound_separates_rounding_from_mistakes(seed):
    class UpperMedian(given.Reader):
        def middle(self, x):
            return x.sort(dim=1).values[:, given.ROWS // 2].unsqueeze(1)

    names: dict[str, Any] = {}
    exec(reference.MODEL, names)
    rng = np.random.default_rng(seed)
    drawn, rows = given.weights(rng), given.inputs(rng)
    want = given.logits(drawn, rows)
    errors = []
    for kind in (names["Rewritten"], UpperMedian):
        model = kind()
        model.load_state_dict(drawn)
        with torch.no_grad():
            errors.append(float((model.eval()(rows) - want).abs().max() / want.abs().max()))
    assert errors[0] < checks.SAME / 1.5 and errors[1] > 1.5 * checks.SAME


def test_a_machine_without_the_release_costs_nobody_a_point(tmp_path, monkeypatch):
    LAB.write_reference(tmp_path)
    monkeypatch.setattr(lab.installation, "installed_release", lambda: "2.12.0")
    verdict = judge(LAB, tmp_path, trusted=True)
    assert "lab 11 needs Torch-TensorRT 2.13.0, found 2.12.0" in verdict.fault and not verdict.outcomes
