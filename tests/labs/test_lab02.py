"""Lab 02 against its reference, other right answers, mistakes that learners make, and cheats for its metric."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from torch import nn

from course_lib import labs
from course_lib.benchmark import sqnr_db
from course_lib.engines import Layer, LayerTable, Plan
from course_lib.errors import ExaminerFault
from course_lib.grading.isolation import sandbox
from course_lib.grading.judge.judging import judge
from course_lib.labs import Examiner, withheld
from course_lib.labs.lab02_fusion import checks, given, reference
from course_lib.labs.lab02_fusion.checks import NAMES, OPSET, FusionWork
from course_lib.labs.lab02_fusion.given import Suspect, drawn, slow_classifier
from course_lib.labs.lab02_fusion.reference import rewritten
from course_lib.models import classifier, digits, export_onnx, fresh_digits
from tests.labs.quick import Quick, tiers
from tests.labs.submissions import lab02 as made
from tests.labs.submissions.lab02 import LEARNER

LAB = labs.find("lab02")
FULL = dict.fromkeys(("equality", "kernels", "causes"), "full")
OTHER = {"equality": "none", "kernels": "none"}  # another function


@pytest.fixture
def submission(tmp_path):
    """Examine a network and costs, as one learner's submission."""

    def examine(network: made.Made | None = None, costs: dict[str, int] | None = None, only: str | None = None):
        if network is not None:
            proto = network if isinstance(network, onnx.ModelProto) else export_onnx(network, opset=OPSET)
            (tmp_path / "model.onnx").write_bytes(proto.SerializeToString())
        found = reference.costs(LEARNER) if costs is None else costs
        (tmp_path / "causes.json").write_text(json.dumps({"learner": LEARNER, "costs": found}))
        return LAB.examine(tmp_path, Quick(seed=3), only)

    return examine


@pytest.fixture
def in_the_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    """As learners have the course: the reference is a placeholder."""
    monkeypatch.setitem(sys.modules, reference.__name__, withheld)
    monkeypatch.setattr(sys.modules[reference.__package__], "reference", withheld)


def text(examined, task: str) -> str:
    return next(f"{one.message} {one.hint}" for one in examined.outcomes if one.task.id == task)


# ---- the network


def test_the_given_network_reads_digits_and_the_repaired_one_is_the_same_function() -> None:
    held_out, images = digits("test"), torch.from_numpy(fresh_digits(64, seed=3).images)
    for learner in ("", LEARNER, "ben"):
        network = slow_classifier(learner)
        assert (network(torch.from_numpy(held_out.images)).argmax(1).numpy() == held_out.labels).mean() >= 0.99
        want = network(images).numpy()
        for repaired in (rewritten(learner), *(rewritten(learner, still=set(NAMES) - {name}) for name in NAMES)):
            assert sqnr_db(want, repaired(images).numpy()) > 120
    with pytest.raises(TypeError, match="GELU"):
        reference.repaired(nn.GELU())


def test_each_learner_has_an_instance_and_a_friends_answers_are_wrong_for_it() -> None:
    learners = [f"learner {number}" for number in range(40)]
    answers = [reference.costs(learner) for learner in learners]
    assert len({json.dumps(one) for one in answers}) > 30
    right = [sum(one[name] == other[name] for name in NAMES) for one in answers for other in answers if one is not other]
    assert np.mean(np.array(right) >= len(NAMES) - 1) < 0.05
    images = torch.from_numpy(fresh_digits(16, seed=3).images)
    assert sqnr_db(slow_classifier("ada")(images).numpy(), slow_classifier("ben")(images).numpy()) < checks.PARTIAL_DB
    assert torch.equal(slow_classifier("ada ")(images), slow_classifier("Ada")(images))


def every_suspect() -> dict[str, tuple[str, Suspect]]:
    """All that can be drawn, by key."""
    found = (one for number in range(1500) for one in drawn(f"learner {number}").items())
    return {checks.key(*one): one for one in found}


def test_learners_have_digests_of_all_costs() -> None:
    """Write the file again with ``json.dumps(expected, indent=1)`` after `reference.cost` has changed."""
    costs = {key: checks.hashed(*one, reference.cost(*one)) for key, one in sorted(every_suspect().items())}
    expected = {"tensorrt_rtx": {"kernels": 14, "costs": costs}}
    assert json.loads(Path(checks.__file__).with_name("expected.json").read_text()) == expected


@pytest.mark.slow
def test_costs_are_what_the_builder_makes_of_each_suspect() -> None:
    for key, one in every_suspect().items():
        assert checks.cost(*one, "tensorrt_rtx") == reference.cost(*one), key


# ---- right answers


@pytest.mark.quick
def test_the_judge_gives_the_reference_full_marks(tmp_path) -> None:
    """In the sandbox, where there is one."""
    LAB.write_reference(tmp_path, learner=LEARNER)
    verdict = judge(LAB, tmp_path, trusted=bool(sandbox.problem()))
    assert not verdict.fault, verdict.fault
    assert tiers(verdict) == FULL, verdict.outcomes
    assert (verdict.score, verdict.figures["kernels_given"], verdict.figures["kernels_reference"]) == (10, 28, 14)
    assert verdict.figures["sqnr_db"] > 120 and len(verdict.table.kernels) == 14  # 20 dB more than full points need


@pytest.mark.parametrize("name", made.ANOTHER)
def test_another_right_answer_has_full_marks(submission, name) -> None:
    examined = submission(made.ANOTHER[name]())
    assert tiers(examined) == FULL, examined.outcomes


# ---- mistakes


@pytest.mark.parametrize("name", made.MISTAKES)
def test_a_mistake_costs_what_it_should_and_is_explained(submission, name) -> None:
    mistake = made.MISTAKES[name]
    examined = submission(mistake.model(), mistake.costs)
    assert tiers(examined) == FULL | mistake.tiers, examined.outcomes
    task = next(iter(mistake.tiers))
    assert mistake.words in text(examined, task)


def test_without_the_reference_wrong_work_does_not_read_like_right_work(submission, in_the_bundle) -> None:
    costs = {"activation": 2, "branches": 2, "concat": 3, "head": 3, "layout": 1, "residual": 6}
    right = submission(right_network(), dict.fromkeys(NAMES, 0) | costs)
    assert tiers(right) == FULL, right.outcomes
    for name in ("nothing rewritten", "one cost wrong", "a friend's costs"):
        mistake = made.MISTAKES[name]
        model = slow_classifier(LEARNER) if name == "nothing rewritten" else right_network()
        wrong = submission(model, mistake.costs)
        for task, tier in mistake.tiers.items():
            assert tiers(wrong)[task] == tier and text(wrong, task) != text(right, task)


_RIGHT = export_onnx(rewritten(LEARNER), opset=OPSET)


def right_network() -> onnx.ModelProto:
    return onnx.ModelProto.FromString(_RIGHT.SerializeToString())


def test_for_another_builder_the_bundle_leaves_open_what_it_does_not_know(submission, in_the_bundle, monkeypatch) -> None:
    monkeypatch.setattr(FusionWork, "expected", None)
    marks = {one.task.id: one.mark for one in submission(right_network()).outcomes}
    assert marks == {"equality": "passed", "kernels": "open", "causes": "open"}


def test_a_file_without_an_id_is_for_an_instructor(submission, tmp_path) -> None:
    submission(rewritten(LEARNER))
    (tmp_path / "causes.json").write_text(json.dumps({"costs": reference.costs(LEARNER)}))
    examined = LAB.examine(tmp_path, Quick())
    assert [(one.tier, one.code) for one in examined.outcomes] == [("inconclusive", "not_examined")] * 3
    assert "An instructor will look at it" in text(examined, "equality")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "not JSON"),
        ('{"learner": "ada", "costs": {"head": "1"}}', 'an object with "costs"'),
        ('{"learner": "ada", "costs": {"fame": 1}}', "names 'fame'; the suspects are activation, branches"),
        ('{"learner": "ada", "costs": {}}', "right costs of the 9 suspects is 0"),
    ],
)
def test_causes_that_cannot_be_read_are_one_line(tmp_path, content, said) -> None:
    (tmp_path / "causes.json").write_text(content)
    (outcome,) = LAB.examine(tmp_path, Quick(), only="causes").outcomes
    assert outcome.tier == "none" and said in outcome.message and "\n" not in outcome.message


# ---- cheats


def test_the_shipped_classifier_is_another_function(submission) -> None:
    """Another network: the one that the given network was made from has 13 kernels and reads digits as well."""
    examined = submission(classifier("small"))
    assert tiers(examined) == FULL | OTHER and examined.figures["kernels"] < 14


# ---- the examiner


def plan(kernels: int) -> Plan:
    layers = LayerTable(tuple(Layer(f"k{number}", "kgen") for number in range(kernels)), {})
    return Plan("tensorrt_rtx", "1", b"", "", {}, (), layers, 0.0)


@pytest.mark.parametrize(
    ("kernels", "tier"),
    [(10, "inconclusive"), (11, "full"), (15, "full"), (16, "partial"), (18, "none")],
)
def test_points_follow_from_the_kernels(submission, monkeypatch, kernels, tier) -> None:
    monkeypatch.setattr(Quick, "build", lambda *_: plan(kernels))
    monkeypatch.setattr(Quick, "runnable", lambda *_: None)
    monkeypatch.setattr(FusionWork, "sqnr", (130.0, "noise"))
    examined = submission(right_network(), only="kernels")
    assert tiers(examined) == {"kernels": tier}


def test_costs_counted_with_the_usual_builder_are_right_for_a_grader_with_another(submission, tmp_path, monkeypatch) -> None:
    """TensorRT 8.6 fuses differently, and a learner counted on a laptop with TensorRT for RTX."""
    costs = reference.costs(LEARNER)
    submission(costs=costs, only="none of the tasks")
    monkeypatch.setattr(checks, "cost", lambda name, *_: costs[name] + 1)
    with FusionWork(LAB, tmp_path, Examiner(builder="tensorrt@trt8")) as work:
        assert all(checks._is_right(work, name, costs[name]) for name in NAMES)
        assert all(checks._is_right(work, name, costs[name] + 1) for name in NAMES), "or counted as the grader does"
        assert not any(checks._is_right(work, name, costs[name] + 2) for name in NAMES)


def test_a_builder_that_cannot_be_graded_with_is_the_examiners_fault(submission, tmp_path, monkeypatch) -> None:
    submission(right_network())
    with pytest.raises(ExaminerFault, match="does not tell which kernels"):
        LAB.examine(tmp_path, Examiner(builder="onnxruntime"))
    monkeypatch.setattr(checks, "_reference_layers", lambda builder: plan(27).layers)
    with pytest.raises(ExaminerFault, match="by itself"):
        LAB.examine(tmp_path, Quick(), only="kernels")


def test_the_network_is_the_same_on_every_machine() -> None:
    runs = slow_classifier(LEARNER).get_submodule(drawn(LEARNER)["branches"].paths[0]).runs
    noise = (runs[1].weight - runs[0].weight) / runs[0].weight.std()
    assert noise.std() == pytest.approx(0.2, rel=0.05)
    assert given.drawn(LEARNER)["activation"] == Suspect(("block1.act", "block2.act"))
