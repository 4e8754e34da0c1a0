"""Lab 06 against its reference, mistakes that learners make, and cheats for its numbers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from course_lib import labs
from course_lib.engines import LayerTable
from course_lib.engines.layers import Layer, LayerTensor
from course_lib.errors import BuildError, CourseError, EngineError, ExaminerFault
from course_lib.labs import Examiner, Outcome
from course_lib.labs.framework.submission_files import MISSING_FILE
from course_lib.labs.lab06_qat import calibrated, figures, float_network, graph_file, graph_reader, network, stored
from course_lib.labs.lab06_qat import lab as lab06
from course_lib.labs.lab06_qat.judge import functions, gradients, recovery, training
from course_lib.labs.lab06_qat.judge.recovery import Secret
from course_lib.labs.lab06_qat.lab import QuantizationAwareTraining
from course_lib.labs.lab06_qat.sandboxed import call_qat
from course_lib.labs.lab06_qat.sandboxed.torch_forward import LAYERS
from course_lib.labs.lab06_qat.stored import Stored
from tests.grading.conftest import needs_sandbox
from tests.labs import quick
from tests.labs.quick import Quick, call_in_process, check_solved, judged_reference
from tests.labs.submissions import hostile
from tests.labs.submissions import lab06 as made
from tests.labs.untouched import leave_untouched

LAB = labs.find("lab06")
assert isinstance(LAB, QuantizationAwareTraining)


@pytest.fixture
def in_process(monkeypatch) -> None:
    """Functions, reader and engines in this process, and fewer images."""

    calibrated.calibration(), made.reference()  # are kept, so they come from all images
    monkeypatch.setattr(network, "_COPIES", 1)
    call_in_process(monkeypatch, call_qat)
    monkeypatch.setattr(graph_reader, "examined", lambda model, **_: read(model))
    monkeypatch.setattr(recovery, "IMAGES", 500)


def read(model: bytes) -> dict[str, Stored]:
    try:
        return graph_reader.stored(model)
    except CourseError as error:
        raise BuildError(f"{graph_file.MODEL}: {error}") from None


def examined(folder: Path, task: str, seed: int = 3) -> Outcome:
    return quick.examined(LAB, folder, task, Quick(seed=seed))


def with_model(folder: Path, layers: dict[str, Stored]) -> Path:
    onnx.save(made.model(layers), folder / graph_file.MODEL)
    return folder


# Right answers


def test_the_judge_gives_the_reference_full_marks(tmp_path):
    verdict = judged_reference(LAB, tmp_path)
    assert min(verdict.figures["budget_share"], verdict.figures["recovered_share"]) > 0.97
    assert verdict.figures["int8_weights"] == 1


@pytest.mark.slow
def test_another_right_answer(tmp_path, in_process):
    made.another(tmp_path)
    check_solved(LAB, LAB.examine(tmp_path, Quick(seed=5)))


def test_the_untouched_release_has_none(tmp_path):
    leave_untouched(LAB.name, tmp_path)
    found = LAB.examine(tmp_path, Examiner())
    assert found.points == 0
    assert all(one.hint for one in found.outcomes)
    assert "fake_quantize is still empty" in found.outcomes[0].message and "fold is still empty" in found.outcomes[1].message
    assert {one.code for one in found.outcomes[2:]} == {MISSING_FILE}


def test_without_the_reference_nothing_is_open(tmp_path, monkeypatch, in_process):
    """No task is compared with the reference, so learners get every verdict in their own checks."""
    onnx.save(made.right(), tmp_path / graph_file.MODEL)
    monkeypatch.setattr(
        QuantizationAwareTraining, "write_reference", lambda *_, **__: pytest.fail("the reference was asked for")
    )
    found = LAB.examine_as_learner(tmp_path, Quick(seed=5), only="recover")
    assert [one.tier for one in found.outcomes] == ["full"]


# The network


def test_calibration_loses_and_training_recovers():
    secret = Secret.drawn(Examiner(seed=1))
    assert secret.floating > 0.99 and secret.calibrated < 0.4
    assert calibrated.accuracy(made.reference(), secret.images) > 0.97


def test_folded_layers_compute_what_the_norms_compute():
    import torch

    images = torch.from_numpy(network.training_images(1).images[:50])
    folded = {name: tuple(map(torch.from_numpy, pair)) for name, pair in calibrated.folded_layers().items()}
    with torch.inference_mode():
        off = network.forward(folded, images) - network.float_model()(images)
    assert off.abs().max() < 1e-4


def test_layers_are_copies():
    network.layers()["stem"]["weight"].zero_()
    assert network.layers()["stem"]["weight"].abs().max() > 0
    assert not network.float_model().head.weight.requires_grad


def test_the_checkpoint_is_trained_by_code(monkeypatch):
    import torch

    monkeypatch.setattr(float_network, "EPOCHS", 1)
    first, again = float_network.train(), float_network.train()
    assert not first.training and torch.equal(first.head.weight, again.head.weight)
    spread = first.norms["expand1"].weight.abs()
    assert spread.max() / spread.min() > 20


def test_a_variant_computes_the_same_function():
    import torch

    variant = training.Variant.drawn(np.random.default_rng(2))
    given = network.training_images(3)
    data = variant.data(given)
    folded = {name: tuple(map(torch.from_numpy, calibrated.fold(layer))) for name, layer in variant.layers().items()}
    with torch.inference_mode():
        found = network.forward(folded, torch.from_numpy(data.images[:50])).numpy()
        same = network.float_model()(torch.from_numpy(given.images[:50])).numpy()
    assert np.abs(found - same[:, variant.classes]).max() < 1e-3
    assert (found.argmax(1) == data.labels[:50]).mean() > 0.95
    assert {array.shape for one in variant.layers().values() for array in one.values()} == {
        tuple(array.shape) for one in network.layers().values() for array in one.values()
    }


# Mistakes in fake_quantize

ROUNDINGS = {
    "true_gradient": ("return torch.clamp(torch.round(x / s), -128, 127) * s + 0 * x", "this is the true gradient of rounding", "none"),
    "no_gradient": ("return (torch.clamp(torch.round(x / s), -128, 127) * s).detach()", "there are no gradients of x", "none"),
    "passes_clipped": ("return x + (torch.clamp(torch.round(x / s), -128, 127) * s - x).detach()", "pass where a value is clipped", "none"),
    "codes": ("c = torch.clamp(x / s, -128, 127); return c + (torch.round(c) - c).detach()", "These are codes, not values", "none"),
    "not_clipped": ("c = x / s; return (c + (torch.round(c) - c).detach()) * s", "Nothing is clipped", "none"),
    "lowest_is_127": ("c = torch.clamp(x / s, -127, 127); return (c + (torch.round(c) - c).detach()) * s", "clipped to -127", "none"),
    "highest_is_128": ("c = torch.clamp(x / s, -128, 128); return (c + (torch.round(c) - c).detach()) * s", "clipped to 128", "none"),
    "rounded_down": ("c = torch.clamp(x / s, -128, 127); return (c + (torch.floor(c) - c).detach()) * s", "rounded down", "none"),
    "unsigned": ("c = torch.clamp(x / s, 0, 255); return (c + (torch.round(c) - c).detach()) * s", "the unsigned ones", "none"),
    "away_from_zero": ("c = torch.clamp(x / s, -128, 127); r = torch.clamp(torch.trunc(x / s + 0.5 * torch.sign(x)), -128, 127)\n"
                       "    return (c + (r - c).detach()) * s", "Halves are rounded away from zero", "none"),
    "scale_detached": ("s = s.detach(); c = torch.clamp(x / s, -128, 127); return (c + (torch.round(c) - c).detach()) * s",
                       "there are no gradients of the scale", "partial"),
    "codes_alone": ("t = s.detach(); c = torch.clamp(x / t, -128, 127); return (c + (torch.round(c) - c).detach()) * s",
                    "They are those of the codes alone", "partial"),
    "an_error": ("return none", "failed: line 8: NameError", "none"),
    "another_package": ("import sklearn", "ImportError the file may import torch", "none"),
}  # fmt: skip
ROUNDING = """
import torch

def fake_quantize(x, scale, axis=None):
    s = scale
    if axis is not None:
        s = scale.reshape([-1 if place == axis else 1 for place in range(x.ndim)])
    {}
"""


@pytest.mark.parametrize("name", ROUNDINGS)
def test_mistake_in_the_rounding_is_named(name, tmp_path, in_process, request):
    body, words, tier = ROUNDINGS[name]
    (tmp_path / "qat.py").write_text(ROUNDING.format(body))
    if name == "another_package":  # the hook is in the process alone
        request.getfixturevalue("monkeypatch").undo()
    outcome = examined(tmp_path, "gradient")
    assert (outcome.tier, outcome.points) == (tier, 1.5 if tier == "partial" else 0.0), outcome.message
    assert words in outcome.message and outcome.hint, outcome.message


@pytest.mark.parametrize(
    ("axis", "words"),
    [
        ("None", "failed: line"),
        ("x.ndim - 1 if axis == 0 else 0", "failed: line"),
        ("1 - axis if x.ndim == 2 and x.shape[0] == x.shape[1] else axis", ""),
    ],
)
def test_mistake_the_other_axis(axis, words, tmp_path, in_process):
    body = f"axis = axis if axis is None else {axis}" if axis != "None" else "s = scale"
    text = ROUNDING.replace(
        "    s = scale\n", f"    s = scale\n    {body}\n" if axis != "None" else "    s = scale\n    axis = None\n"
    )
    (tmp_path / "qat.py").write_text(
        text.format("c = torch.clamp(x / s, -128, 127); return (c + (torch.round(c) - c).detach()) * s")
    )
    outcome = examined(tmp_path, "gradient")
    assert outcome.tier == "none" and " weight" in outcome.message and words in outcome.message, outcome.message
    if not words:
        assert "The scales lie along the other axis" in outcome.message and "Which shape must it have" in outcome.hint


@pytest.mark.parametrize(
    "scale",
    [
        "scale.reshape(-1, *[1] * (x.ndim - 1)) if axis == 0 else scale",
        "scale.reshape([-1 if place == list(x.shape).index(len(scale)) else 1 for place in range(x.ndim)])",
        "scale.reshape(-1, 1) if x.ndim == 2 and axis == 0 else scale.reshape(-1, *[1] * (3 - axis)) if x.ndim == 4 else scale",
    ],
)
def test_an_axis_is_right_for_each_rank(scale, tmp_path, in_process):
    body = "c = torch.clamp(x / s, -128, 127); return (c + (torch.round(c) - c).detach()) * s"
    text = ROUNDING.replace("scale.reshape([-1 if place == axis else 1 for place in range(x.ndim)])", scale)
    (tmp_path / "qat.py").write_text(text.format(body))
    outcome = examined(tmp_path, "gradient")
    assert outcome.tier == "none" and "along `axis`" in outcome.hint, (outcome.message, outcome.hint)


def test_torchs_own_fake_quantization_is_right_but_for_the_scale(tmp_path, in_process):
    """And the oracle agrees with it."""
    body = """
def fake_quantize(x, scale, axis=None):
    import torch
    if axis is None:
        return torch.fake_quantize_per_tensor_affine(x, scale.item(), 0, -128, 127)
    zero = torch.zeros(len(scale), dtype=torch.int32)
    return torch.fake_quantize_per_channel_affine(x, scale.detach(), zero, axis, -128, 127)
"""
    (tmp_path / "qat.py").write_text(body)
    outcome = examined(tmp_path, "gradient")
    assert outcome.tier == "partial" and "there are no gradients of the scale" in outcome.message


def test_questions_are_decidable():
    """Both ways to divide round every value to the same code, and none lies where gradients are a matter of taste."""
    for seed in range(20):
        for one in gradients.questions(np.random.default_rng(seed)):
            step = one.step.astype(np.float32)
            ways = [np.rint(one.x / step), np.rint(one.x * (1 / step))]
            assert np.array_equal(*ways), one.name
            beyond = np.maximum(one.ratio - gradients.HIGH, gradients.LOW - one.ratio)
            assert not ((beyond > 0) & (beyond < 0.5)).any()


# Mistakes in fold and train

FOLDS = {
    "no_root": ({"torch.sqrt(layer[\"variance\"] + 1e-5)": "(layer[\"variance\"] + 1e-5)"}, "The root of the variance is missing"),
    "no_eps": ({"layer[\"variance\"] + 1e-5": "layer[\"variance\"]"}, "The norm adds 1e-5 to the variance"),
    "no_mean": ({" - layer[\"mean\"] * factor": ""}, "The mean is missing from the bias"),
    "mean_alone": ({"- layer[\"mean\"] * factor": "- layer[\"mean\"]"}, "The mean is subtracted without its factor"),
    "plus_mean": ({"- layer[\"mean\"] * factor": "+ layer[\"mean\"] * factor"}, "The mean has the wrong sign"),
    "weight_left": ({"weight * factor[:, None, None, None]": "weight"}, "The weight is not multiplied by the factor"),
    "head_folded": ({"if \"gamma\" not in layer:": "if False:"}, "fold of the head, which has no norm failed: line 31: KeyError"),
}  # fmt: skip


@pytest.mark.parametrize("name", FOLDS)
def test_mistake_in_folding_is_named(name, tmp_path, in_process):
    changes, words = FOLDS[name]
    (tmp_path / "qat.py").write_text(made.qat(changes, steps=0))
    outcome = examined(tmp_path, "budget")
    assert outcome.tier == "none" and words in outcome.message and outcome.hint, outcome.message


TRAININGS = {
    "nothing_trained": ({}, 0, "nothing was trained"),
    "gradient_zero": ({"return upstream * inside,": "return 0 * upstream,", "pair], lr": "pair if one.ndim > 1], lr"}, 1,
                      "nothing was trained"),
    "one_scale": ({"\"scale\": steps_of(w)": "\"scale\": steps_of(w).max()"}, 0, "has one scale: expected 16"),
    "scales_of_inputs": ({"torch.round(w.detach() / steps_of(w).reshape(-1, *[1] * (w.ndim - 1)))": "w.detach().sum((1,))"}, 0,
                         "are not whole numbers from -128 to 127"),
    "codes_unsigned": ({"\"codes\": torch.round": "\"codes\": 128 + torch.round"}, 0, "are not whole numbers from -128 to 127"),
    "channels_of_an_input": ({"\"input_scale\": scales[name]": "\"input_scale\": scales[name] * torch.ones(2)"}, 0,
                             "has 2 scales: expected one"),
    "a_layer_lost": ({"for name, (w, b) in pairs.items()\n    }": "for name, (w, b) in pairs.items() if name != 'mix'\n    }"}, 0,
                     "train failed: KeyError 'mix'"),
    "too_many_images": ({"images[:500]": "images.repeat(9, 1, 1, 1)"}, 0, "the budget is 12,000 images through forward"),
    "images_from_a_hook": ({"fake_quantize(x, scales[name])": "fake_quantize(images[:64] if name == 'stem' else x, scales[name])",
                            "(pairs, images[chosen], read": "(pairs, images[:1], read"}, 1, "expected (1, 1, 32, 32)"),
    "weights_from_a_hook": ({"fake_quantize(w, steps_of(w), 0)": "torch.cat([w, w])"}, 1, "expected (16, 1, 5, 5)"),
    "forward_unused": ({"forward(pairs, images[:500], watch)": "[watch(name, images) for name in pairs]"}, 0,
                       "did not call the forward pass"),
    "empty": ({"    pairs = {name: fold(layer) for": "    raise NotImplementedError\n    pairs = {name: fold(layer) for"}, 0,
              "train is still empty"),
    "not_finite": ({"\"bias\": b,": "\"bias\": b / 0,"}, 0, "the bias of stem is NaN or infinite"),
    "no_step": ({"\"input_scale\": scales[name]": "\"input_scale\": 0 * scales[name]"}, 0,
                "a scale of stem is zero, negative or not finite"),
}  # fmt: skip


@pytest.mark.parametrize("name", TRAININGS)
def test_mistake_in_training_is_named(name, tmp_path, in_process):
    changes, steps, words = TRAININGS[name]
    (tmp_path / "qat.py").write_text(made.qat(changes, steps=steps))
    outcome = examined(tmp_path, "budget")
    assert outcome.tier == "none" and words in outcome.message and outcome.hint, outcome.message


def test_mistake_batch_norm_with_the_statistics_of_a_batch(tmp_path, in_process):
    """Statistics of the last batch in place of the norm's own: fold is right, and the network is another one."""
    (tmp_path / "qat.py").write_text(
        made.qat(
            {"    pairs = {name: fold(layer) for": "    layers = {name: {part: array.mean() + 0 * array if part in ('mean', 'variance')"
             " else array for part, array in one.items()} for name, one in layers.items()}\n    pairs = {name: fold(layer) for"},
            steps=0,
        )
    )  # fmt: skip
    outcome = examined(tmp_path, "budget")
    assert outcome.tier == "none" and "Does the loss fall during training?" in outcome.hint, outcome.message


def test_a_training_that_never_ends_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(functions, "TIME_LIMIT_S", 1.0)
    (tmp_path / "qat.py").write_text("def fake_quantize(x, scale, axis=None):\n    while True: pass\n")
    outcome = examined(tmp_path, "gradient")
    assert outcome.tier == "none" and "no answer within 1 s" in outcome.message


# Mistakes in the network that was handed in


def test_mistake_training_in_float_and_calibrating_afterwards(tmp_path, in_process):
    outcome = examined(with_model(tmp_path, made.trained_in_float()), "recover")
    assert outcome.tier == "none" and "they were trained in float, or with other input scales" in outcome.message, (
        outcome.message
    )


def test_mistake_only_calibrated(tmp_path, in_process):
    outcome = examined(with_model(tmp_path, dict(calibrated.calibration())), "recover")
    assert outcome.tier == "none" and "nothing was trained" in outcome.message and "gradient" in outcome.hint


def test_mistake_calibrated_again_after_training(tmp_path, in_process):
    outcome = examined(with_model(tmp_path, made.calibrated_again()), "recover")
    assert outcome.tier in ("none", "partial") and outcome.hint, outcome.message


def test_half_of_the_points_for_most_of_the_accuracy(in_process):
    secret = Secret(network.training_images(), floating=0.99, calibrated=0.19)
    for accuracy, tiers in ((0.97, (True, True)), (0.9, (False, True)), (0.5, (False, False))):
        full, half = recovery.Recovered(accuracy, secret).criteria()
        assert (full[0].met, half[0].met) == tiers
    given = {name: weight for name, (weight, _) in calibrated.folded_layers().items()}
    said, hint = recovery.problem(made.calibrated_again(), recovery.Recovered(0.9, secret), given)
    assert not said and "input scales can be trained" in hint


@pytest.mark.parametrize(("spared", "tier"), [(("stem",), "full"), (("expand2", "mix"), "none"), (("expand2",), "partial")])
def test_layers_in_float_cost_the_points_of_kernels_and_recover(spared, tier, tmp_path, in_process):
    with_model(tmp_path, made.in_float(*spared))
    outcome = examined(tmp_path, "kernels")
    assert outcome.tier == tier and f"In float: {', '.join(spared)}." in outcome.message, outcome.message
    assert examined(tmp_path, "recover").message.startswith(f"{', '.join(spared)} compute in float")


@pytest.mark.parametrize("without", made.WITHOUT_USE)
def test_cheat_int8_kernels_of_a_network_that_reads_no_digit(without, tmp_path, in_process):
    outcome = examined(with_model(tmp_path, made.WITHOUT_USE[without]()), "kernels")
    assert outcome.points == 0 and "share of the secret images that are right is 0." in outcome.message, outcome.message
    assert "Run the file on the test images" in outcome.hint


def test_int8_kernels_of_a_network_that_is_only_calibrated_count(tmp_path, in_process):
    with_model(tmp_path, dict(calibrated.calibration()))
    assert examined(tmp_path, "kernels").tier == "full"


def test_a_network_that_does_not_run_has_no_points_for_kernels(tmp_path, in_process, monkeypatch):
    def fails(*_, **__):
        raise EngineError("its process ended")

    monkeypatch.setattr(recovery, "run", fails)
    for task in ("recover", "kernels"):
        assert "its process ended" in examined(with_model(tmp_path, made.reference()), task).message


def test_a_network_without_pairs_is_not_built(tmp_path, in_process):
    with_model(tmp_path, made.in_float(*LAYERS))
    for task in ("kernels", "recover"):
        assert "no layer has a pair on its input and on its weight" in examined(tmp_path, task).message


def test_a_builder_without_depthwise_kernels_costs_no_points(tmp_path, in_process, monkeypatch):
    """Such a layer computes in float however it is quantized."""
    with_model(tmp_path, made.reference())
    real = lab06.int8_layers

    def without_depthwise(table):
        integer, floating = real(table)
        return [name for name in integer if "depth" not in name], [*floating, *(name for name in integer if "depth" in name)]

    monkeypatch.setattr(lab06, "int8_layers", without_depthwise)
    outcome = examined(tmp_path, "kernels")
    assert outcome.tier == "full" and outcome.criteria[0].found == "1.00"
    monkeypatch.setattr(lab06, "int8_layers", lambda table: ([], list(LAYERS)))
    with pytest.raises(ExaminerFault, match="no INT8 layer in the calibrated network"):
        examined(tmp_path, "kernels")


def test_a_table_without_the_layers_is_the_examiners_fault(tmp_path, in_process, monkeypatch):
    class Empty:
        layers = LayerTable((Layer("k", "kgen", (), (LayerTensor("w", (1,), "Int8", "Linear"),), (), "", ()),), {"k": "Conv"})

    monkeypatch.setattr(Quick, "build", lambda *_: Empty())
    with pytest.raises(ExaminerFault, match="does not show every layer"):
        examined(with_model(tmp_path, made.reference()), "kernels")


def _axis(model: onnx.ModelProto, name: str, axis: int | None) -> None:
    one = made.node(model, name)
    del one.attribute[:]
    if axis is not None:
        one.attribute.append(onnx.helper.make_attribute("axis", axis))


def _constant(model: onnx.ModelProto, name: str, array: np.ndarray) -> None:
    made.constant(model, name).CopyFrom(numpy_helper.from_array(np.asarray(array), name))


def _bias(model: onnx.ModelProto) -> None:
    made.pair(model, "mix.bias", "mix", 2)


def _before_silu(model: onnx.ModelProto) -> None:
    made.pair(model, "stem.sum", "stem.sigmoid", 0)


def _shortcut(model: onnx.ModelProto) -> None:
    made.node(model, "residual").input[0] = "expand2.input.rounded"


def _output(model: onnx.ModelProto) -> None:
    made.node(model, "head").output[0] = "sums"
    made.pair(model, "sums", "head", 0)
    made.node(model, "head").input[0] = "head.input.rounded"
    made.node(model, "sums/more/dq").output[0] = "logits"


def _one_scale(model: onnx.ModelProto) -> None:
    for part, array in (("scale", np.float32(0.01)), ("zero", np.int8(0))):
        _constant(model, f"mix.weight.{part}", array)


FORMS = {
    "axis_left_out": (lambda m: _axis(m, "mix.weight/dequantize", None), "lie along axis 1, the default"),
    "other_axis": (lambda m: _axis(m, "mix.weight/quantize", 1), "lie along axis 1: its output channels are axis 0"),
    "one_scale": (_one_scale, "the weight of mix has one scale: expected 96"),
    "pair_on_a_bias": (_bias, "the bias of mix has a pair"),
    "pair_before_silu": (_before_silu, "stem.sigmoid (Sigmoid) reads a pair"),
    "pair_on_the_shortcut": (_shortcut, "residual (Add) reads a pair"),
    "pair_on_the_output": (_output, "a pair writes 'logits': the output of head must stay float"),
    "half_a_pair": (lambda m: m.graph.node.remove(made.node(m, "mix.input/quantize")), "the input of mix has half a pair"),
    "no_zero_point": (lambda m: made.node(m, "mix.input/quantize").input.pop(), "has no zero point, so ONNX makes its codes unsigned"),
    "unsigned": (lambda m: _constant(m, "mix.input.zero", np.uint8(128)), "must be 0 and int8"),
    "two_scales": (lambda m: (m.graph.initializer.append(numpy_helper.from_array(np.float32(0.5), "more")),
                              made.node(m, "mix.input/dequantize").input.__setitem__(1, "more")), "have different scales"),
    "float_weight_left": (lambda m: m.graph.initializer.append(numpy_helper.from_array(np.ones(3, np.float32), "mix.old")),
                          "'mix.old' is stored and not used"),
    "a_scale_of_zero": (lambda m: _constant(m, "mix.input.scale", np.float32(0)), "a scale of mix is zero, negative or not finite"),
    "other_operators": (lambda m: setattr(m.opset_import[0], "version", 13), "the operator set is 13, expected 17"),
    "a_node_less": (lambda m: m.graph.node.remove(made.node(m, "flat")), "the node 'flat' of the float graph is missing"),
    "another_node": (lambda m: setattr(made.node(m, "stem.silu"), "op_type", "Add"),
                     "the node 'stem.silu' (Add) is not as in the float graph"),
    "other_input": (lambda m: made.node(m, "mix.input/quantize").input.__setitem__(0, "project1.sum"),
                    "mix reads 'project1.sum', expected 'residual'"),
    "scale_in_half": (lambda m: _constant(m, "mix.input.scale", np.float16(1)), "is float16, expected float32"),
    "another_shape": (lambda m: _constant(m, "mix.bias", np.zeros(3, np.float32)), "the bias of mix has the shape (3,), expected (96,)"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_mistake_in_the_form_of_the_graph_is_named(name, tmp_path, in_process):
    change, words = FORMS[name]
    model = made.right()
    change(model)
    (tmp_path / graph_file.MODEL).write_bytes(model.SerializeToString())
    outcome = examined(tmp_path, "kernels")
    assert outcome.points == 0 and words in outcome.message and outcome.hint, outcome.message


def test_both_forms_of_a_weight_are_read_as_the_same_network():
    for model in (made.right(), made.with_codes(made.reference())):
        onnx.checker.check_model(model)
        found = graph_reader.examined(model.SerializeToString())
        for name, one in made.reference().items():
            assert np.array_equal(found[name].weight, one.weight), name
            assert np.array_equal(found[name].scale, one.scale) and np.array_equal(found[name].bias, one.bias)
            assert found[name].input_scale == np.float32(one.input_scale)


def test_float_layers_are_read_as_float():
    found = graph_reader.parsed(
        graph_reader.wire(graph_reader.stored(graph_file.float_graph(calibrated.folded_layers()).SerializeToString()))
    )
    assert not any(one.quantized for one in found.values())
    assert np.array_equal(found["mix"].values(), calibrated.folded_layers()["mix"][0])


@pytest.mark.instructions
def test_the_engine_is_the_network_that_was_trained():
    """ONNX Runtime on this CPU, with or without 8-bit dot products, against the forward pass of the training."""
    layers = {name: replace(one, input_scale=0.5 * one.input_scale) for name, one in calibrated.calibration().items()}
    images = network.training_images(4)
    secret = Secret(type(images)(images.images[:200], images.labels[:200]), floating=1.0, calibrated=0.0)
    found = recovery.run(layers, secret, Quick(runner="onnxruntime"))
    assert abs(found.accuracy - calibrated.accuracy(layers, secret.images)) <= 0.01  # two images on the border of two codes


def test_layers_are_checked():
    right = made.reference()
    stored.check(right)
    for change, words in (
        ({"weight": right["mix"].weight[:5]}, "the weight of mix has the shape"),
        ({"scale": -right["mix"].scale}, "a scale of mix is zero, negative"),
        ({"input_scale": float("nan")}, "a scale of mix"),
        ({"bias": np.full(96, np.inf, np.float32)}, "the bias of mix is NaN or infinite"),
    ):
        with pytest.raises(CourseError, match=words.replace("(", r"\(")):
            stored.check(right | {"mix": replace(right["mix"], **change)})
    with pytest.raises(CourseError, match="the layer 'head' is missing"):
        graph_file.float_graph({name: pair for name, pair in calibrated.folded_layers().items() if name != "head"})


# Cheats


@pytest.mark.parametrize(("cheat", "words"), made.CHEATS, ids=lambda one: getattr(one, "__name__", ""))
def test_cheat_in_the_graph_is_blocked(cheat, words, tmp_path, in_process):
    model = made.right()
    cheat(model)
    (tmp_path / graph_file.MODEL).write_bytes(model.SerializeToString())
    for task in ("recover", "kernels"):
        outcome = examined(tmp_path, task)
        assert outcome.points == 0 and words in outcome.message, outcome.message


def test_cheat_stored_numbers_do_not_fit_the_variant(tmp_path, in_process):
    """They fit into the file, and belong to other channels, classes and images."""
    (tmp_path / "qat.py").write_text(made.with_stored_numbers())
    assert (tmp_path / "qat.py").stat().st_size < functions.MAX_BYTES
    outcome = examined(tmp_path, "budget")
    assert outcome.tier == "none" and "share of the lost accuracy that is recovered is -" in outcome.message, outcome.message


def test_cheat_a_gradient_that_knows_the_test(tmp_path, in_process):
    """Other tensors come in each grading, so a table of answers is wrong."""
    first, second = (gradients.questions(np.random.default_rng(seed)) for seed in (1, 2))
    answers = [{part: np.asarray(value, np.float32) for part, value in one.truth.items()} for one in first]
    assert gradients.judged(first, answers).full[0].met
    assert not gradients.judged(second, answers).full[0].met and not gradients.judged(second, answers).half[1].met


# What a rounding can compute first and be right for contiguous tensors, for scales and gradients of usual size, and for few channels.
_AS_X = "x = {}.reshape(x.shape)"
BY_MEMORY = {
    "order_of_the_memory": _AS_X.format("torch.as_strided(x, (x.numel(),), (1,))"),
    "order_of_the_transposed_memory": _AS_X.format("(x if x.is_contiguous() else x.permute(*reversed(range(x.ndim))))"),
    "the_storage": _AS_X.format("(torch.as_strided(x, (x.numel(),), (min([*x.stride(), 9**9]),)) if x.ndim else x)"),
}
OF_USUAL_SIZES = {
    "no_small_scale": "scale = scale.clamp(min=2.0**-8)",
    "no_tiny_scale": "scale = scale.clamp(min=2.0**-16)",
    "no_large_scale": "scale = scale.clamp(max=2.0**4)",
    "scales_are_powers_of_two": "scale = torch.exp2(torch.floor(torch.log2(scale))) if axis is None else scale",
    "few_channels": "scale = torch.cat([scale[:64], scale[63:64].expand(max(0, len(scale) - 64))]) if axis is not None else scale",
    "gradients_are_clipped": "x.register_hook(lambda gradient: gradient.clamp(-100, 100))",
}


def rounded(folder: Path, seed: int, first: str) -> Outcome:
    """The outcome of a right rounding that begins with the line `first`."""
    (folder / "qat.py").write_text(f"""
import torch

def fake_quantize(x, scale, axis=None):
    {first}
    if axis is not None:
        scale = scale.reshape([-1 if place == axis else 1 for place in range(x.ndim)])
    c = torch.clamp(x / scale, -128, 127)
    return (c + (torch.round(c) - c).detach()) * scale
""")
    return examined(folder, "gradient", seed)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", BY_MEMORY)
def test_cheat_elements_in_the_order_of_the_memory(name, seed, tmp_path, in_process):
    """They are the right ones for contiguous tensors alone."""
    outcome = rounded(tmp_path, seed, BY_MEMORY[name])
    assert outcome.tier == "none" and "tensors with the right values" in outcome.message, outcome.message
    assert rounded(tmp_path, seed, _AS_X.format("x.reshape(-1)")).tier == "full"


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", OF_USUAL_SIZES)
def test_cheat_a_rounding_for_usual_sizes_alone(name, seed, tmp_path, in_process):
    assert rounded(tmp_path, seed, OF_USUAL_SIZES[name]).points == 0
    assert rounded(tmp_path, seed, "pass").tier == "full"


# What the backward pass reads is kept outside of autograd's graph: where, and how it is read again.
OUTSIDE_OF_THE_GRAPH = {
    "the_last_one": ("None", "kept = [now]", "kept[0]"),
    "a_stack": ("[]", "kept.append(now)", "kept.pop()"),
    "a_queue": ("[]", "kept.append(now)", "kept.pop(0)"),
    "by_shape_and_axis": ("{}", "kept[x.shape, axis] = now", "kept[upstream.shape, ctx.axis]"),
    "by_shape_and_scale": ("{}", "kept[x.shape, str(scale)] = now", "kept[upstream.shape, ctx.of]"),
}
KEEPS = """
import torch

kept = {empty}

class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, axis):
        global kept
        ctx.axis, ctx.of, shape = axis, str(scale), scale.shape
        step = scale if axis is None else scale.reshape([-1 if k == axis else 1 for k in range(x.ndim)])
        ratio = x / step
        codes = ratio.round().clamp(-128, 127)
        now = ratio, codes, step, shape
        {keep}
        return codes * step

    @staticmethod
    def backward(ctx, upstream):
        ratio, codes, step, shape = {read}
        inside = (ratio >= -128) & (ratio <= 127)
        to_scale = upstream * (codes - torch.where(inside, ratio, 0.0))
        return upstream * inside, to_scale.sum_to_size(step.shape).reshape(shape), None

def fake_quantize(x, scale, axis=None):
    return Rounded.apply(x, scale, axis)
"""


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", OUTSIDE_OF_THE_GRAPH)
def test_cheat_a_backward_pass_that_reads_what_another_forward_pass_kept(name, seed, tmp_path, in_process):
    empty, keep, read = OUTSIDE_OF_THE_GRAPH[name]
    (tmp_path / "qat.py").write_text(KEEPS.format(empty=empty, keep=keep, read=read))
    outcome = examined(tmp_path, "gradient", seed)
    assert outcome.points == 0 and "0 where a value of another tensor was clipped" in outcome.message, outcome.message
    assert "ctx.save_for_backward" in outcome.hint
    (tmp_path / "qat.py").write_text(KEEPS.format(empty=None, keep="ctx.now = now", read="ctx.now"))
    assert examined(tmp_path, "gradient", seed).tier == "full"


LOOKS = """
import sys

def fake_quantize(x, scale, axis=None):
    frame = sys._getframe()
    while frame:
        for values in (frame.f_locals, frame.f_globals):
            if "truth" in values or "Question" in values:
                return values["truth"]
        frame = frame.f_back
    sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__name__ != "OnlyPackages"]
    from course_lib.labs.lab06_qat.reference.qat import fake_quantize as theirs
    return theirs(x, scale, axis)
"""


@needs_sandbox  # which alone hides the course
def test_cheat_a_rounding_that_takes_the_references(tmp_path):
    from course_lib.grading.isolation.sandbox import Sandbox

    (tmp_path / "qat.py").write_text(LOOKS)
    examiner = Examiner(seed=1, bare_launcher=Sandbox(course=False, packages=LAB.packages).command)
    outcome = LAB.examine(tmp_path, examiner, only="gradient").outcomes[0]
    assert outcome.tier == "none" and "No module named 'course_lib'" in outcome.message, outcome.message


@pytest.mark.parametrize(
    "answer",
    [b"", b"[]", b"{}", b'{"train": 1}', b'{"train": [1]}', b'{"train": [{"layers": {"stem": 1}}]}',
     b'{"train": [{"layers": {"stem": {"codes": {"dtype": "O", "shape": [1], "data": ""}}}, "seen": 3}]}',
     b'{"train": [{"layers": {"stem": {"codes": {"dtype": "1)", "shape": [1], "data": ""}}}, "seen": 3}]}',
     b'{"train": [{"seen": 1e999}]}', b'{"train": [{"layers": 3, "seen": 3}]}', b"[" * 5000],
)  # fmt: skip
def test_a_hostile_process_is_read_in_one_line(answer):
    try:
        found = functions.parsed(answer, {"train": 1}).get("train", [{}])[0]
        with pytest.raises(CourseError):
            training.seen(found), training.trained(found)
    except EngineError as error:
        assert str(error).isprintable()


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (0, "did not call the forward pass"),
        (-7, "no number of images"),
        (training.BUDGET + 1, "no number of images"),
        ({"dtype": "float64", "shape": [2], "data": "AAAAAAAA8D8AAAAAAADwPw=="}, "no number of images"),  # an array
        ({"a": 3}, "no number of images"),
    ],
)
def test_the_number_of_images_is_a_number(seen, words):
    answer = json.dumps({"train": [{"layers": {}, "seen": seen}]}).encode()
    (found,) = functions.parsed(answer, {"train": 1})["train"]
    with pytest.raises(CourseError, match=words):
        training.seen(found)


@pytest.mark.parametrize("answer", [b"", b"{}\n", b"[]\n", b'{"stem": 1}\n', b'{"stem": [true, true]}\n' + bytes(100)])
def test_a_hostile_reader_of_graphs_is_read_in_one_line(answer):
    with pytest.raises(EngineError, match="invalid answer"):
        graph_reader.parsed(answer)


@pytest.mark.parametrize(
    "change",
    [hostile.weights_in_a_file_elsewhere, hostile.weights_larger_than_any_memory],
    ids=lambda change: change.__name__,
)
def test_hostile_graphs_are_turned_away_in_one_line(tmp_path, change):
    (tmp_path / graph_file.MODEL).write_bytes(hostile.changed(made.right(), change).SerializeToString())
    outcome = examined(tmp_path, "kernels")
    assert outcome.points == 0 and outcome.message.isprintable() and outcome.hint


def test_a_file_that_is_not_a_graph(tmp_path):
    (tmp_path / graph_file.MODEL).write_bytes(b"a text")
    outcome = examined(tmp_path, "recover")
    assert outcome.points == 0 and "not an ONNX model" in outcome.message


# Figures


def test_figures_have_names_on_their_axes():
    drawn = figures.channels_and_step(np.array([0.1, 10.0]), 0.08, "One channel has a single step")
    assert drawn.axes[0].get_xlabel() == "channel, sorted"
    drawn = figures.accuracies({"float": 0.99, "INT8": 0.2}, "Calibration loses")
    assert drawn.axes[0].get_xlabel() == "accuracy (%)"
