"""Lab 05 against its reference, mistakes that learners make, and cheats for its metrics."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from course_lib import labs
from course_lib._util.cpu_int8 import session_options
from course_lib.engines import build
from course_lib.errors import EngineError, ExaminerFault
from course_lib.grading.isolation import sandbox
from course_lib.grading.judge.judging import judge
from course_lib.labs import Examination, Examiner
from course_lib.labs.framework import withheld
from course_lib.labs.lab05_calibration import lab
from course_lib.labs.lab05_calibration import reference as lab05_reference
from course_lib.labs.lab05_calibration.data import FULL_INK, calibration_scans, faulty_scans
from course_lib.labs.lab05_calibration.judge.answer_quality import Quality, quality
from course_lib.models import classifier, export_onnx, fresh_digits
from course_lib.precision import (
    EntropyCalibrator,
    MinMaxCalibrator,
    MSECalibrator,
    PercentileCalibrator,
    activations,
    cpu_features,
    insert_qdq,
    lowering_helps,
)
from course_lib.recipe import Recipe
from tests.labs.quick import Quick, tiers
from tests.labs.submissions import hostile
from tests.labs.untouched import leave_untouched

LAB = labs.find("lab05")
RECIPE = lab05_reference.recipe()
needs_vnni = pytest.mark.skipif(not lowering_helps(), reason=f"no 8-bit dot products among {len(cpu_features())} CPU features")


@pytest.fixture(scope="module")
def network() -> onnx.ModelProto:
    return lab05_reference.observed()[0]


@pytest.fixture(scope="module")
def seen():
    """Over all scans, the faulty ones included."""
    return lab05_reference.observed(clean=False)[1]


@pytest.fixture(scope="module")
def layers(network) -> list[str]:
    """Names of the ten layers with weights, in the network's order."""
    return [node.name for node in network.graph.node if node.op_type in ("Conv", "Gemm")]


@pytest.fixture(scope="module")
def good(network, layers):
    """The reference's ranges, and some for the tensors that are shortcuts where layers stay in float."""
    spared = [activations(network, exclude=layers[start:stop]) for start in range(10) for stop in range(start, 11)]
    return {**dict.fromkeys(itertools.chain(*spared), 5.0), **lab05_reference.observed()[1].ranges(MinMaxCalibrator())}


@pytest.fixture(scope="module")
def reference(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("reference")
    LAB.write_reference(folder)
    return folder


@pytest.fixture
def submission(tmp_path, reference, monkeypatch):
    """Examine a submission that is right except for what is given; images are few, to be quick."""
    monkeypatch.setattr(lab, "FRESH_IMAGES", 64)

    def examine(
        *,
        model: onnx.ModelProto | None = None,
        text: str | None = None,
        source: str | None = None,
        only: str | None = None,
    ) -> Examination:
        for name in LAB.artifacts:
            (tmp_path / name).write_bytes((reference / name).read_bytes())
        if model is not None:
            (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
        if text is not None:
            (tmp_path / "recipe.toml").write_text(text)
        if source is not None:
            (tmp_path / "calibrator.py").write_text(source)
        return LAB.examine(tmp_path, Quick(measure_s=3), only=only)

    return examine


@pytest.mark.parametrize(
    ("scale", "tier", "said"), [(1.0, "inconclusive", "Right so far"), (40.0, "none", "SQNR of the logits is")]
)
def test_without_the_reference_ranges_are_compared_with_pytorch(submission, network, good, monkeypatch, scale, tier, said):
    """The learner's bundle built nothing and showed every range as open."""
    monkeypatch.setattr(lab, "lab05_reference", withheld)
    model = insert_qdq(network, {name: scale * amax for name, amax in good.items()})
    found = {one.task.id: one for one in submission(model=model, only="sqnr").outcomes}
    assert found["sqnr"].tier == tier and said in found["sqnr"].message and " dB SQNR. " in found["sqnr"].message
    assert "10 of 10 layers with weights compute in INT8." in found["kernels"].message


def hint(examined: Examination, task: str) -> str:
    return next(outcome.hint for outcome in examined.outcomes if outcome.task.id == task)


# ---- whole submissions


def test_the_judge_gives_the_reference_full_marks(reference):
    """In the sandbox, where there is one."""
    verdict = judge(LAB, reference, trusted=bool(sandbox.problem()))
    assert not verdict.fault, verdict.fault
    assert tiers(verdict) == dict.fromkeys(("calibrator", "sqnr", "kernels", "speed"), "full"), verdict.outcomes
    assert (verdict.score, verdict.max_score) == (10, 10)
    assert 39 <= verdict.figures["sqnr_db"] <= 43
    if lowering_helps():
        assert verdict.comparison.speedups["yours"].median >= 2


@pytest.mark.parametrize(("low", "high", "missing"), [(4, 4, 1), (1, 1, 2), (1, 31, 32), (2, 32, 1)])
def test_a_profile_that_leaves_batches_of_the_service_out_has_no_engine(submission, low, high, missing):
    shapes = {bound: (batch, 1, 32, 32) for bound, batch in (("min", low), ("opt", high), ("max", high))}
    examined = submission(text=Recipe(precision="int8", profiles=[{"image": shapes}]).dumps(), only="sqnr")
    assert {*tiers(examined).values()} == {"none"}
    assert f"does not accept a batch of {missing}: the service sends 1 to 32" in str(examined.outcomes[0].message)
    assert "`service` accepts batches from 1 to 32" in hint(examined, "sqnr")


def test_nothing_handed_in_has_none(tmp_path):
    examined = LAB.examine(tmp_path, Examiner())
    assert examined.points == 0 and examined.max_points == 10
    assert [outcome.message.split(" is missing")[0] for outcome in examined.outcomes] == ["calibrator.py", *["model.onnx"] * 3]
    assert all(outcome.hint for outcome in examined.outcomes)


def test_untouched_release_has_none(tmp_path):
    leave_untouched(LAB.name, tmp_path)
    examined = LAB.examine(tmp_path, Examiner())
    assert examined.points == 0
    assert "still empty" in hint(examined, "calibrator")


def test_min_max_on_the_faulty_scans(submission, network, seen):
    """Right kernels, wrong answers: and a wrong engine has no speed."""
    examined = submission(model=insert_qdq(network, seen.ranges(MinMaxCalibrator())))
    assert tiers(examined) == {"calibrator": "full", "sqnr": "none", "kernels": "full", "speed": "none"}
    assert examined.points == 5
    assert "How many scans set it?" in hint(examined, "sqnr")
    assert examined.figures["sqnr_db"] < 5


RANGES_WITHOUT_USE = {"a_million": 1e6, "a_millionth": 1e-6}


@pytest.mark.parametrize("only", [None, "kernels"])
@pytest.mark.parametrize("name", RANGES_WITHOUT_USE)
def test_cheat_int8_layers_of_an_engine_that_reads_no_digit(name, only, submission, network):
    model = insert_qdq(network, dict.fromkeys(activations(network), RANGES_WITHOUT_USE[name]))
    examined = submission(model=model, only=only)
    assert {one.tier for one in examined.outcomes if one.task.id != "calibrator"} == {"none"}
    kernels = next(one for one in examined.outcomes if one.task.id == "kernels")
    assert "10 of 10 layers" in kernels.message and "of the fresh images are right, expected at least 30 %" in kernels.message
    assert kernels.hint


def test_answers_that_are_wrong_for_one_batch_size_leave_the_points_for_kernels(submission, monkeypatch):
    def wrong(*_):
        raise EngineError("a batch of 17 has other answers")

    monkeypatch.setattr(lab, "check_every_size", wrong)
    examined = submission()
    assert tiers(examined) == {"calibrator": "full", "sqnr": "none", "kernels": "full", "speed": "none"}


def test_an_engine_without_answers_has_no_points_for_kernels(submission, monkeypatch):
    def late(*_):
        raise EngineError("a batch of 1 takes too long")

    monkeypatch.setattr(lab, "check_pace", late)
    examined = submission(only="kernels")
    assert {one.tier for one in examined.outcomes} == {"none"} and "takes too long" in examined.outcomes[1].message


@pytest.mark.slow
@needs_vnni
def test_copy_that_answers_otherwise_costs_the_speed_alone(submission, monkeypatch):
    """A cheat: a model that is right as it stands and saves its work once it is lowered."""
    monkeypatch.setattr(lab, "argmax_agreement", lambda model, lowered: 0.5)
    examined = submission()
    assert tiers(examined) == {"calibrator": "full", "sqnr": "full", "kernels": "full", "speed": "none"}
    assert "keeps its answer for only 50 %" in examined.outcomes[-1].message


@pytest.mark.slow
@needs_vnni
def test_pairs_on_biases_cost_the_speed(submission, network, good):
    model = insert_qdq(network, good)
    for node in [node for node in model.graph.node if node.op_type in ("Conv", "Gemm")]:
        bias = next(numpy_helper.to_array(i) for i in model.graph.initializer if i.name == node.input[2])
        add_pair(model.graph, node.input[2], float(np.abs(bias).max()) / 127, [node])
    examined = submission(model=model)
    assert tiers(examined) == {"calibrator": "full", "sqnr": "full", "kernels": "full", "speed": "none"}, examined.outcomes
    assert "on biases" in hint(examined, "speed")


def test_without_vnni_the_points_for_speed_follow_the_layers(submission, network, good, layers, monkeypatch):
    monkeypatch.setattr(lab, "lowering_helps", lambda: False)
    monkeypatch.setattr(lab.lowering, "wanted", lambda examiner: True)
    examined = submission(model=insert_qdq(network, good, exclude=layers[:3]), source="")
    assert tiers(examined) == {"calibrator": "none", "sqnr": "full", "kernels": "partial", "speed": "partial"}
    assert examined.points == 0 + 3 + 1 + 1
    assert "no VNNI" in examined.outcomes[-1].message and examined.comparison is None


def add_pair(graph: onnx.GraphProto, tensor: str, scale: float, readers: list[onnx.NodeProto]) -> None:
    """A Q/DQ pair for `tensor` in front of its readers."""
    name = f"more/{tensor}"
    graph.initializer.append(numpy_helper.from_array(np.array(scale, np.float32), f"{name}/scale"))
    graph.initializer.append(numpy_helper.from_array(np.array(0, np.int8), f"{name}/zero_point"))
    parameters = [f"{name}/scale", f"{name}/zero_point"]
    place = min(index for index, node in enumerate(graph.node) if node in readers)
    graph.node.insert(place, helper.make_node("QuantizeLinear", [tensor, *parameters], [f"{name}/q"], name=f"{name}/quantize"))
    pair = helper.make_node("DequantizeLinear", [f"{name}/q", *parameters], [f"{name}/dq"], name=f"{name}/dequantize")
    graph.node.insert(place + 1, pair)
    for node in readers:
        for position, read in enumerate(node.input):
            if read == tensor:
                node.input[position] = f"{name}/dq"


# ---- SQNR: the same judgment, on engines in this process


class InProcess:
    """An engine without its own process."""

    def __init__(self, model: onnx.ModelProto) -> None:
        import onnxruntime

        self._session = onnxruntime.InferenceSession(
            model.SerializeToString(), session_options(), providers=["CPUExecutionProvider"]
        )

    def infer(self, feeds):
        return {"logits": self._session.run(None, feeds)[0]}


@pytest.fixture(scope="module")
def judged(network, good):
    """The quality of a model, on few images."""
    fresh = fresh_digits(32, seed=11)

    class Remembered(InProcess):
        """It answers the same images again for every model that is judged."""

        def infer(self, feeds):
            known, key = self.__dict__.setdefault("known", {}), feeds["image"].tobytes()
            if key not in known:
                known[key] = super().infer(feeds)
            return known[key]

    eager, reference = Remembered(network), Remembered(insert_qdq(network, good))
    return lambda model: quality(eager, reference, InProcess(model), fresh)


def clean(rule):
    return lambda network, seen: lab05_reference.observed()[1].ranges(rule)


# ranges, tier, words of the hint
RANGES = {
    "min-max without the faulty scans": (clean(MinMaxCalibrator()), "full", ""),
    "mean squared error without the faulty scans": (clean(MSECalibrator()), "full", ""),
    "entropy without the faulty scans": (clean(EntropyCalibrator()), "full", ""),
    "percentile 99.99 without the faulty scans": (clean(PercentileCalibrator(99.99)), "full", ""),
    "percentile 99.95, the best that clips": (
        lambda _, seen: seen.ranges(PercentileCalibrator(99.95)),
        "partial",
        "How many scans",
    ),
    "entropy": (lambda _, seen: seen.ranges(EntropyCalibrator()), "partial", ""),
    "percentile 99.9": (lambda _, seen: seen.ranges(PercentileCalibrator(99.9)), "partial", "loses by clipping"),
    "percentile a little low": (lambda _, seen: seen.ranges(PercentileCalibrator(99.8)), "none", "loses by clipping"),
    "percentile too low": (lambda _, seen: seen.ranges(PercentileCalibrator(99)), "none", "loses by clipping"),
    "percentile too high": (lambda _, seen: seen.ranges(PercentileCalibrator(99.99)), "none", "steps are too coarse"),
    "mean squared error": (lambda _, seen: seen.ranges(MSECalibrator()), "none", "steps are too coarse"),
    "min-max": (lambda _, seen: seen.ranges(MinMaxCalibrator()), "none", "steps are too coarse"),
    "ink from 0 to 255": (
        lambda _, seen: {name: 255 * amax for name, amax in seen.ranges(PercentileCalibrator(99.9)).items()},
        "none",
        "ink from 0 to 1",
    ),
    "scales so large that everything is 0": (lambda _, seen: dict.fromkeys(seen, 1e9), "none", "ink from 0 to 1"),
}


@pytest.mark.parametrize("name", RANGES)
def test_ranges(judged, network, seen, name):
    ranges, tier, words = RANGES[name]
    found = judged(insert_qdq(network, ranges(network, seen)))
    assert found.tier == tier, found
    assert words in found.hint() and bool(found.hint()) == (tier != "full")


def test_one_scale_for_all_channels_and_float_ends_are_right_as_well(judged, network, good, layers):
    assert judged(insert_qdq(network, good, per_channel=False)).tier == "full"
    assert judged(insert_qdq(network, good, exclude=[layers[0], layers[-1]])).tier == "full"


def test_margins():
    """What the thresholds say about figures that lie between two of the rules above."""
    found = Quality(40, 40, 40, 0.99, 0.99, 1)
    expected = ["full", "partial", "partial", "none"]
    assert [dataclasses.replace(found, sqnr_db=db).tier for db in (35.1, 34.9, 26.1, 25.9)] == expected
    assert [dataclasses.replace(found, accuracy=share).tier for share in (0.971, 0.969, 0.951, 0.949)] == expected
    assert dataclasses.replace(found, sqnr_db=17, reference_sqnr_db=18).tier == "none"  # the floor holds whatever the reference


def test_answers_without_numbers(network):
    class Odd:
        def infer(self, feeds):
            return {"logits": np.full((len(feeds["image"]), 10), np.nan, np.float32)}

    eager = InProcess(network)
    found = quality(eager, eager, Odd(), fresh_digits(8, seed=1))
    assert (found.tier, found.sqnr_db) == ("none", -120)
    assert "NaN" in found.hint() and all(np.isfinite(value) for value in found.figures().values())


# ---- layers


@pytest.fixture(scope="module")
def reference_plan(network, good):
    return build(insert_qdq(network, good), RECIPE, backend="tensorrt_rtx")


@pytest.mark.parametrize(
    ("start", "stop", "tier"),
    [(0, 2, "full"), (9, 10, "full"), (3, 8, "partial"), (0, 6, "none")],
)
def test_layers_left_in_float(reference_plan, network, good, layers, start, stop, tier):
    plan = build(insert_qdq(network, good, exclude=layers[start:stop]), RECIPE, backend="tensorrt_rtx")
    outcome = LAB._kernels(plan, reference_plan)
    assert (outcome.tier, outcome.points) == (tier, {"full": 2, "partial": 1, "none": 0}[tier])
    assert f"{10 - stop + start} of 10 layers" in outcome.message
    if tier != "full":
        assert layers[start] in outcome.message and "both of its inputs" in outcome.hint


def test_small_layers_in_int8_beside_the_float_network(submission, network, layers, good):
    """A cheat: INT8 layers that compute next to nothing prove the label, while the network itself stays float."""
    model, before = copy.deepcopy(network), "image"
    for node in model.graph.node:
        node.output[:] = ["true_logits" if name == "logits" else name for name in node.output]
    model.graph.initializer.append(numpy_helper.from_array(np.full((1, 1, 1, 1), 1e-6, np.float32), "tiny"))
    for index in range(12):
        model.graph.node.append(helper.make_node("Conv", [before, "tiny"], [f"decoy{index}"], name=f"decoy{index}"))
        before = f"decoy{index}"
    model.graph.node.append(helper.make_node("GlobalAveragePool", [before], ["mean"], name="mean"))
    model.graph.node.append(helper.make_node("Flatten", ["mean"], ["flat"], name="flat"))
    model.graph.node.append(helper.make_node("Add", ["true_logits", "flat"], ["logits"], name="add"))
    ranges = {**good, **{f"decoy{index}": 1.0 for index in range(12)}}
    examined = submission(model=insert_qdq(model, ranges, exclude=layers))
    assert tiers(examined) == {"calibrator": "full", "sqnr": "none", "kernels": "none", "speed": "none"}, examined.outcomes
    assert "of 22 layers" in examined.outcomes[2].message


def test_smaller_network_scores_nothing(submission):
    """A cheat: the small classifier reads digits as well and is several times as fast."""
    small = export_onnx(classifier("small"), opset=17)
    examined = submission(model=insert_qdq(small, dict.fromkeys(activations(small), 5.0)), only="speed")
    assert (tiers(examined), examined.points) == (dict.fromkeys(("sqnr", "kernels", "speed"), "none"), 0)
    assert "another network" in examined.outcomes[1].message


def without_activation_pairs(model: onnx.ModelProto) -> onnx.ModelProto:
    """Only the weights stay quantized."""
    changed, constants = copy.deepcopy(model), {initializer.name for initializer in model.graph.initializer}
    source = {node.output[0]: node.input[0] for node in changed.graph.node if node.op_type == "QuantizeLinear"}
    source = {result: tensor for result, tensor in source.items() if tensor not in constants}
    renamed = {node.output[0]: source[node.input[0]] for node in changed.graph.node if node.input[0] in source}
    kept = [node for node in changed.graph.node if node.output[0] not in source and node.output[0] not in renamed]
    for node in kept:
        node.input[:] = [renamed.get(name, name) for name in node.input]
    del changed.graph.node[:]
    changed.graph.node.extend(kept)
    return changed


def test_quantized_weights_alone_are_no_int8_engine(submission, network, good):
    examined = submission(model=without_activation_pairs(insert_qdq(network, good)), only="kernels")
    assert {outcome.tier for outcome in examined.outcomes} == {"none"}
    assert "0 of 10 layers" in examined.outcomes[0].message and "both of its inputs" in examined.outcomes[0].hint


def test_a_layer_with_the_name_of_an_int8_kernel_is_no_int8_layer(submission, network, good):
    """A cheat: each kernel that expands INT8 weights lends its name to a float convolution."""
    model = without_activation_pairs(insert_qdq(network, good))
    names = [kernel.name for kernel in build(model, RECIPE, backend="tensorrt_rtx").layers.kernels if not kernel.inputs]
    convolutions = [node for node in model.graph.node if node.op_type == "Conv"]
    assert len(names) == len(convolutions) == 9
    for node, name in zip(convolutions, names, strict=True):
        node.name = name
    examined = submission(model=model, only="kernels")
    assert {outcome.tier for outcome in examined.outcomes} == {"none"}
    assert "0 of 10 layers" in examined.outcomes[0].message


def test_reference_without_int8_layers_is_the_examiners_fault(reference_plan):
    empty = dataclasses.replace(reference_plan, layers=type(reference_plan.layers)())
    with pytest.raises(ExaminerFault, match="no INT8 layer"):
        LAB._kernels(reference_plan, empty)


# ---- what is rejected before anything runs


def test_float_engine_that_is_called_int8(submission, network):
    """A cheat: the label alone."""
    examined = submission(model=network, only="sqnr")
    assert tiers(examined) == dict.fromkeys(("sqnr", "kernels", "speed"), "none")
    assert "none of" in examined.outcomes[0].message and "Q/DQ pairs" in hint(examined, "sqnr")


def test_float_engine_that_is_called_float(submission, network):
    """A cheat: without any quantization there is no quantization noise."""
    examined = submission(model=network, text=RECIPE.model_copy(update={"precision": "fp32"}).dumps(), only="sqnr")
    assert examined.points == 0
    assert 'asks for "int8"' in examined.outcomes[0].message


def test_asymmetric_zero_points_are_rejected(submission, network, good):
    model = insert_qdq(network, good)
    (zero_point,) = (i for i in model.graph.initializer if i.name == "image/zero_point")
    zero_point.CopyFrom(numpy_helper.from_array(np.array(-128, np.int8), zero_point.name))
    examined = submission(model=model, only="kernels")
    assert examined.points == 0
    assert "every zero point is 0" in hint(examined, "kernels")


@pytest.mark.parametrize("change", hostile.CHANGES, ids=lambda change: change.__name__)
def test_hostile_model_is_one_short_line(submission, network, good, change):
    examined = submission(model=hostile.changed(insert_qdq(network, good), change), only="sqnr")
    # a name is cleaned before anything reads it
    assert tiers(examined)["sqnr"] == ("full" if change is hostile.a_name_of_two_lines else "none")
    for outcome in examined.outcomes:
        assert len(outcome.message.splitlines()) == 1 and len(outcome.message) < 1200, outcome
    json.dumps(dict(examined.figures), allow_nan=False)


@pytest.mark.parametrize("text", ["precison = 'int8'", "precision = 'int9'", "[[profile]]\nimage = 3", "\x00"])
def test_broken_recipe_is_one_line(submission, text):
    examined = submission(text=text, only="kernels")
    assert examined.points == 0
    assert all("\n" not in outcome.message for outcome in examined.outcomes)


# ---- the recording


def test_recording_is_what_the_story_says():
    scans = calibration_scans()
    assert (scans.dtype, scans.shape) == (np.uint16, (1000, 1, 32, 32))
    overdriven, stuck, inverted = faulty_scans()
    highest = scans.reshape(1000, -1).max(1)
    assert sorted(np.flatnonzero(highest > 2 * FULL_INK)) == sorted((overdriven, stuck))
    ink = (scans / FULL_INK).reshape(1000, -1).mean(1)
    assert set(np.argsort(ink)[-3:]) == {overdriven, stuck, inverted}
    scans[:] = 0
    assert calibration_scans().any()
