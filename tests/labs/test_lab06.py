"""Lab 06 against its reference, another right answer, and mistakes that learners make."""

from __future__ import annotations

import json
import sys
from functools import partial

import numpy as np
import pytest
import torch

from course_lib import labs
from course_lib.engines import LayerTable
from course_lib.errors import CourseError, ExaminerFault
from course_lib.labs import withheld
from course_lib.labs.framework import runner, submission
from course_lib.labs.lab06_qat import checks, given, reference
from course_lib.labs.lab06_qat.checks import QatWork, Recovered, Secret
from course_lib.labs.lab06_qat.given import WEIGHTS
from course_lib.labs.lab06_qat.lab import QuantizationAwareTraining
from course_lib.labs.lab06_qat.layers import LAYERS
from course_lib.labs.lab06_qat.sandboxed import call_qat
from course_lib.models import digits
from docs import make_checkpoints
from tests.labs.quick import Quick, check_mistake, check_solved, examined
from tests.labs.submissions import lab06 as made

LAB = labs.find("lab06")
assert isinstance(LAB, QuantizationAwareTraining)


@pytest.fixture
def in_process(monkeypatch) -> None:
    """The learner's function in this process."""

    def called(command, question, **_):
        return json.dumps(call_qat.answers(json.loads(question))).encode()

    monkeypatch.setattr(runner, "run_isolated", called)


def test_the_reference_has_full_marks(tmp_path, in_process):
    LAB.write_reference(tmp_path)
    found = LAB.examine(tmp_path, Quick(seed=4))
    check_solved(LAB, found)
    assert found.figures["recover_recovered"] > 0.97


def test_another_right_answer_is_decided_without_the_reference(tmp_path, monkeypatch, in_process):
    made.another(tmp_path)
    monkeypatch.setitem(sys.modules, reference.__name__, withheld)
    check_solved(LAB, LAB.examine(tmp_path, Quick(seed=5)))


@pytest.mark.parametrize("name", made.MISTAKES)
def test_a_mistake_is_named(name, tmp_path, in_process):
    check_mistake(LAB, tmp_path, made.MISTAKES[name], Quick(seed=3))


# ---- the network


def test_calibration_loses_and_folded_layers_compute_what_the_norms_compute():
    images = torch.from_numpy(digits("test").images[:100])
    folded = {name: reference.fold(layer) for name, layer in given.layers().items()}
    with torch.inference_mode():
        assert torch.allclose(given.forward(folded, images), given.float_model()(images), atol=1e-3)
    for name, (weight, bias) in given._folded("").items():
        assert np.allclose(weight, folded[name][0].numpy(), atol=1e-6) and np.allclose(bias, folded[name][1].numpy(), atol=1e-5)
    assert given.accuracy(given.calibration(), given.in_order_of("", digits("test"))) < 0.4


def test_the_checkpoint_is_trained_by_code(monkeypatch, tmp_path):
    monkeypatch.setattr("course_lib.models.weights.FOLDER", tmp_path)
    monkeypatch.setattr(make_checkpoints, "UNEVEN_EPOCHS", 1)
    first, again = make_checkpoints.train_uneven(), make_checkpoints.train_uneven()
    assert not first.training and torch.equal(first.head.weight, again.head.weight)
    spread = first.norms["expand1"].weight.abs()
    assert spread.max() / spread.min() > 20


def test_the_engine_is_the_network(tmp_path):
    """What PyTorch computes is what an engine of the graph computes, but for values between two codes."""
    made.save_float_layers(("depth1",), tmp_path)
    with QatWork(LAB, tmp_path, Quick(seed=3)) as work:
        found = work.recovered("kernels", work.with_float_layers)
        assert found.accuracy == pytest.approx(
            given.accuracy(given.keep_in_float(["depth1"], made.LEARNER), work.secret.images), abs=0.01
        )


def test_an_interval_that_contains_the_bound_reaches_it():
    secret = Secret(digits("test"), 1.0, 0.2)
    assert Recovered(0.95, secret).reaches(0.95) and not Recovered(0.9, secret).reaches(0.95)
    assert Recovered(1.0, secret).share == 1 and Recovered(0.2, secret).share == 0


# ---- files


@pytest.mark.parametrize(
    ("task", "answers", "words"),
    [
        ("kernels", {"float_layers": ["depth3"]}, "no layer 'depth3'"),
        ("kernels", {}, "has no list of names"),
        ("ranges", {"input_scales": {"stem": 0.1}}, "has no number for expand1"),
        ("ranges", {"input_scales": dict.fromkeys(LAYERS, 0.0)}, "a scale of stem is zero, negative or not finite"),
    ],
)
def test_a_choice_that_cannot_be_read_is_named(task, answers, words, tmp_path):
    submission.write(tmp_path / checks.CHOICES, made.LEARNER, **answers)
    outcome = examined(LAB, tmp_path, task, Quick(seed=3))
    assert outcome.tier == "none" and words in outcome.message and outcome.hint, outcome


@pytest.mark.parametrize(("text", "words"), [("depth1", "is not JSON"), ("[1]", "has no names and values")])
def test_a_file_of_another_form_is_named(text, words, tmp_path):
    (tmp_path / checks.CHOICES).write_text(text)
    assert words in examined(LAB, tmp_path, "kernels", Quick(seed=3)).message


def test_a_friends_network_is_wrong_under_another_id(tmp_path):
    made.save_trained(partial(reference.trained, made.LEARNER, learned_scales=False), tmp_path)
    submission.write(tmp_path / checks.CHOICES, "ben")
    assert examined(LAB, tmp_path, "recover", Quick(seed=3)).points == 0


def test_without_an_id_an_instructor_decides(tmp_path):
    (tmp_path / checks.CHOICES).write_text('{"float_layers": ["depth1", "depth2"]}')
    assert examined(LAB, tmp_path, "kernels", Quick(seed=3)).tier == "inconclusive"


def test_all_learners_have_the_same_accuracy():
    images = digits("test")
    with torch.inference_mode():
        logits = {name: given.float_model(name)(torch.from_numpy(images.images)).numpy() for name in ("ada", "ben")}
    right = {name: given.share_right(one, given.in_order_of(name, images)) for name, one in logits.items()}
    assert right["ada"] == right["ben"] > 0.98
    lost = [given.accuracy(given.calibration(name), given.in_order_of(name, images)) for name in right]
    assert lost[0] == pytest.approx(lost[1], abs=0.02)


@pytest.mark.parametrize(
    ("part", "value", "words"),
    [
        ("codes", None, "depth1.codes: it is missing, expected an array of int8"),
        ("codes", np.zeros((64, 9), np.int8), "depth1.codes: found int8 of the shape (64, 9), expected an array of int8"),
        ("input_scale", np.ones(1, np.float32), "depth1.input_scale: found float32 of the shape (1,), expected an array"),
    ],
)
def test_a_trained_layer_that_cannot_be_stored_is_named(part, value, words, tmp_path):
    network = {name: dict(one) for name, one in made.calibrated().items()}
    network["depth1"][part] = value
    if value is None:
        del network["depth1"][part]
    made.save_trained(lambda: network, tmp_path)
    outcome = examined(LAB, tmp_path, "recover", Quick(seed=3))
    assert outcome.tier == "none" and words in outcome.message and outcome.hint, outcome


def test_other_scales_and_layers_are_rejected_in_the_notebook():
    with pytest.raises(CourseError, match="no layer 'relu'"):
        given.with_input_scales({"relu": 0.1})
    with pytest.raises(CourseError, match="a scale of stem"):
        given.with_input_scales({"stem": -0.1})


# ---- the rounding


@pytest.mark.parametrize("words", made.MADE["roundings"])
def test_mistake_in_the_rounding_is_named(words, tmp_path, in_process):
    made.save_qat(made.MADE["roundings"][words], tmp_path)
    outcome = examined(LAB, tmp_path, "gradient", Quick(seed=3))
    assert outcome.tier == ("partial" if "codes alone" in words else "none") and words in outcome.message and outcome.hint, (
        outcome
    )


def test_pytorchs_own_fake_quantization_is_right_but_for_the_scale(tmp_path, in_process):
    (tmp_path / checks.QAT).write_text(
        "import torch\n\ndef fake_quantize(x, scale, axis=None):\n    if axis is None:\n"
        "        return torch.fake_quantize_per_tensor_affine(x, scale.detach(), torch.tensor(0, dtype=torch.int32), -128, 127)\n"
        "    zeros = torch.zeros(len(scale), dtype=torch.int32)\n"
        "    return torch.fake_quantize_per_channel_affine(x, scale.detach(), zeros, axis, -128, 127)\n"
    )
    assert examined(LAB, tmp_path, "gradient", Quick(seed=3)).tier == "partial"


# ---- the layer table


def test_a_builder_without_depthwise_kernels_costs_no_points(tmp_path, monkeypatch):
    made.save_float_layers(("depth1",), tmp_path)
    monkeypatch.setattr(
        checks, "int8_layers", lambda _: ([name for name in LAYERS if "depth" not in name], ["depth1", "depth2"])
    )
    monkeypatch.setattr(checks, "LEAST_INT8", 0.95)
    found = examined(LAB, tmp_path, "kernels", Quick(seed=3)).criteria[0]
    assert found.met and found.found == "1"


def test_a_table_without_the_layers_is_the_examiners_fault():
    class Empty:
        layers = LayerTable(())

    with pytest.raises(ExaminerFault, match="does not show every layer"):
        checks._int8_share(Empty())
    assert set(WEIGHTS) == set(LAYERS)


def test_the_layers_in_float_are_those_that_are_named(tmp_path):
    made.save_float_layers(("stem", "head"), tmp_path)
    with QatWork(LAB, tmp_path, Quick()) as work:
        assert checks._int8_share(work.plan)[0] == ["stem", "head"]
