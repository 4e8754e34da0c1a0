"""Lab 02 against its reference, mistakes that learners make, and cheats for its metric."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given as drawn
from hypothesis import strategies as st
from onnx import TensorProto, compose, helper, numpy_helper
from torch import Tensor, nn
from torch.nn import functional as F

from course_lib import labs
from course_lib.benchmark import sqnr_db
from course_lib.engines import Layer, LayerTable, ModelSource, Plan, build, load
from course_lib.errors import BuildError, CourseError, ExaminerFault, ReferenceAbsent
from course_lib.grading.isolation import sandbox
from course_lib.grading.judge.judging import judge
from course_lib.labs import Examination, Examiner
from course_lib.labs import lab02_fusion as package
from course_lib.labs.framework import withheld
from course_lib.labs.framework.task import Outcome
from course_lib.labs.lab02_fusion import causes as lab02_causes
from course_lib.labs.lab02_fusion import lab as lab02
from course_lib.labs.lab02_fusion.causes import PARTS
from course_lib.labs.lab02_fusion.judge import counts
from course_lib.labs.lab02_fusion.judge.counts import OPSET, costs, given_layers
from course_lib.labs.lab02_fusion.judge.equivalence import BATCHES
from course_lib.labs.lab02_fusion.lab import Fusion
from course_lib.labs.lab02_fusion.network import SlowClassifier, slow_classifier
from course_lib.labs.lab02_fusion.reference import Mean, repaired, rewritten
from course_lib.labs.lab02_fusion.reference_causes import EVIDENCE, GUILTY
from course_lib.models import classifier, digits, export_onnx, fresh_digits
from tests import slow_cases
from tests.bare import bare_python
from tests.labs.quick import tiers
from tests.labs.submissions import hostile
from tests.labs.submissions import lab02 as made
from tests.labs.untouched import leave_untouched

LAB = labs.find("lab02")
assert isinstance(LAB, Fusion)


class Quick(Examiner):
    """Engines answer in this process, and each is made once."""

    def baseline(self, source):
        return nullcontext(_given(source))

    def runnable(self, model, recipe, built=None):
        return _runnable(model.read_bytes())

    def reference(self, plan):
        return nullcontext(_engine(plan.data))

    engine = reference


@cache
def _given(source: ModelSource):
    return load(source)


@cache
def _runnable(model: bytes) -> Plan:
    return build(onnx.load_model_from_string(model), LAB.recipe, backend="onnxruntime")


@cache
def _engine(model: bytes):
    return load(_runnable(model))


@pytest.fixture(scope="module")
def examiner() -> Examiner:
    return Quick()


@pytest.fixture(scope="module")
def reference(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("reference")
    LAB.write_reference(folder)
    return folder


Examine = Callable[..., Examination]


@pytest.fixture
def submission(tmp_path, examiner) -> Examine:
    """Examine a network for equality and kernels."""

    def examine(network: nn.Module | onnx.ModelProto, **options) -> Examination:
        proto = network if isinstance(network, onnx.ModelProto) else export_onnx(network, opset=OPSET, **options)
        (tmp_path / "model.onnx").write_bytes(proto.SerializeToString())
        return LAB.examine(tmp_path, examiner, only="kernels")

    return examine


@pytest.fixture
def name_causes(tmp_path, examiner, reference) -> Examine:
    """Examine causes.json: the reference's with some changes, or a text."""

    def examine(text: str | None = None, **changes) -> Examination:
        causes = {**json.loads((reference / "causes.json").read_text()), **changes}
        kept = {suspect: nodes for suspect, nodes in causes.items() if nodes is not None}
        (tmp_path / "causes.json").write_text(json.dumps(kept) if text is None else text)
        return LAB.examine(tmp_path, examiner, only="causes")

    return examine


def message(examined: Examination, task: str) -> str:
    return next(outcome.message for outcome in examined.outcomes if outcome.task.id == task)


def hint(examined: Examination, task: str) -> str:
    return next(outcome.hint for outcome in examined.outcomes if outcome.task.id == task)


def still(*repaired_suspects: str) -> nn.Module:
    """The network with only these suspects repaired."""
    return rewritten(still=[suspect for suspect in PARTS if suspect not in repaired_suspects])


# The network


def test_the_given_network_reads_digits_and_is_the_same_on_every_machine():
    network = slow_classifier()
    held_out = digits("test")
    assert (network(torch.from_numpy(held_out.images)).argmax(1).numpy() == held_out.labels).mean() >= 0.99
    twin = network.block2.conv1
    noise = (twin.second.weight - twin.first.weight) / twin.first.weight.std()
    assert noise.std() == pytest.approx(0.2, rel=0.02)
    assert noise.flatten()[:3].tolist() == pytest.approx([-0.083352, -0.011253, -0.427239], abs=1e-4)


def test_rewritten_parts_compute_the_same():
    """Where what is repaired is wrong, every threshold of this lab is."""
    images = torch.from_numpy(fresh_digits(64, seed=3).images)
    want = slow_classifier()(images).numpy()
    for suspect in PARTS:
        assert sqnr_db(want, still(suspect)(images).numpy()) > 120, suspect
    assert sqnr_db(want, rewritten()(images).numpy()) > 120


@pytest.mark.slow
def test_what_each_suspect_costs_is_what_the_course_says():
    """Recorded for TensorRT for RTX 1.7.1: the notebook's text and the reference's causes rest on it."""
    measured = costs("tensorrt_rtx")
    assert measured == {
        **dict.fromkeys(PARTS, 0), "activation": 4, "branches": 1, "concat": 2, "head": 1, "layout": 1, "residual": 7,
    }  # fmt: skip
    assert {suspect for suspect, kernels in measured.items() if kernels} == set(GUILTY)


def test_nothing_is_known_against_other_parts():
    with pytest.raises(TypeError, match="GELU"):
        repaired(nn.GELU())


# Right answers


@pytest.mark.quick
def test_the_judge_gives_the_reference_full_marks(reference):
    """In the sandbox, where there is one."""
    verdict = judge(LAB, reference, trusted=bool(sandbox.problem()))
    assert not verdict.fault, verdict.fault
    assert tiers(verdict) == {"equality": "full", "kernels": "full", "causes": "full"}, verdict.outcomes
    assert (verdict.score, verdict.max_score) == (10, 10)
    assert (verdict.figures["kernels_given"], verdict.figures["kernels_reference"]) == (28, 14)
    assert verdict.figures["sqnr_db"] > 120  # 20 dB more than full points need
    assert len(verdict.table.kernels) == 14


class ByHand(nn.Module):
    """Another right answer: a flat network of convolutions with the norms folded by hand, and layer norm for the statistics."""

    def __init__(self) -> None:
        super().__init__()
        parts = rewritten()
        self.stem = self.fold(parts.stem, parts.norm)
        self.convs = nn.ModuleList()
        for block in (parts.block1, parts.block2, parts.block3):
            self.convs += [self.fold(block.conv1, block.norm1), self.fold(block.conv2, block.norm2)]
            self.convs.append(self.fold(*block.shortcut) if isinstance(block.shortcut, nn.Sequential) else nn.Identity())
        self.head = parts.head

    @staticmethod
    def fold(conv: nn.Conv2d, norm: nn.BatchNorm2d) -> nn.Conv2d:
        scale = norm.weight / torch.sqrt(norm.running_var + norm.eps)
        folded = nn.Conv2d(conv.in_channels, conv.out_channels, conv.kernel_size, conv.stride, conv.padding)
        folded.weight.data = conv.weight * scale[:, None, None, None]
        folded.bias.data = norm.bias - scale * norm.running_mean
        return folded

    def forward(self, image: Tensor) -> Tensor:
        x = F.relu(self.stem(F.layer_norm(image, (1, 32, 32)) * 0.32 + 0.31))
        for i in (0, 3, 6):
            x = F.relu(self.convs[i + 1](F.relu(self.convs[i](x))) + self.convs[i + 2](x))
        return self.head(x.mean(dim=(2, 3)))

    def signature(self):
        return slow_classifier().signature()


def test_another_network_of_ones_own(submission):
    examined = submission(ByHand())
    assert tiers(examined) == {"equality": "full", "kernels": "full"}, examined.outcomes


@pytest.mark.slow
def test_graph_surgery_instead_of_torch(submission):
    """A third right answer: the Where nodes of an exported graph replaced by Relu."""
    model = export_onnx(rewritten(still=["activation"]), opset=OPSET)
    for node in model.graph.node:
        if node.op_type == "Where":
            node.op_type, node.input[:] = "Relu", [node.input[1]]
    assert tiers(submission(model)) == {"equality": "full", "kernels": "full"}


@pytest.mark.slow
def test_one_kernel_more_than_the_reference_is_still_full(submission):
    examined = submission(rewritten(still=["branches"]))
    assert tiers(examined) == {"equality": "full", "kernels": "full"}
    assert examined.figures["kernels"] == 15


class ChannelsLastMean(Mean):
    def forward(self, x: Tensor) -> Tensor:
        return x.permute(0, 2, 3, 1).flatten(1, 2).mean(1)


@pytest.mark.slow
def test_fewer_kernels_than_the_reference_are_full(submission):
    network = rewritten()
    network.pool = ChannelsLastMean()
    examined = submission(network)
    assert tiers(examined) == {"equality": "full", "kernels": "full"}
    assert examined.figures["kernels"] == 13


# Mistakes


def test_nothing_handed_in_has_none(tmp_path, examiner):
    examined = LAB.examine(tmp_path, examiner)
    assert examined.points == 0
    assert "model.onnx is missing" in message(examined, "equality")
    assert "Task 2 writes model.onnx" in hint(examined, "equality")
    assert "causes.json" in message(examined, "causes")


def test_the_untouched_release_has_none(tmp_path, examiner):
    leave_untouched(LAB.name, tmp_path)
    assert (tmp_path / "model.onnx").is_file() and (tmp_path / "causes.json").is_file()
    examined = LAB.examine(tmp_path, examiner)
    assert (examined.points, examined.max_points) == (0, 10), examined.outcomes


def test_the_given_network_itself_scores_nothing(submission):
    examined = submission(slow_classifier())
    assert tiers(examined) == {"equality": "none", "kernels": "none"}
    assert "28 kernels; the given network has 28, the reference 14" in message(examined, "kernels")
    assert "kept it out" in hint(examined, "kernels")


@pytest.mark.parametrize(
    ("suspects", "tier", "points"),
    slow_cases.after(
        2,
        [
            (("casts", "reshape", "primitives"), "none", 0),
            (("residual",), "partial", 1.5),
            (("residual", "activation", "concat"), "partial", 3),
            (("residual", "activation", "concat", "layout", "head"), "full", 5),
        ],
    ),
)
def test_half_a_rewrite_is_worth_a_part(submission, suspects, tier, points):
    examined = submission(still(*suspects))
    kernels = examined.outcomes[1]
    assert (kernels.tier, kernels.points) == (tier, points), examined.outcomes
    assert examined.outcomes[0].points == (3 if points else 0)


def no_eps(network: SlowClassifier) -> None:
    for norm in (network.norm, network.block1.norm1):
        norm.eps = 0.0


def one_branch_dropped(network: SlowClassifier) -> None:
    network.block2.conv1 = slow_classifier().block2.conv1.first


def halves_swapped(network: SlowClassifier) -> None:
    network.block3.conv1.weight.data = network.block3.conv1.weight.data.roll(32, 0)


class OverTheBatch(nn.Module):
    def forward(self, image: Tensor) -> Tensor:
        return (image - image.mean()) / image.std() * 0.32 + 0.31


def statistics_over_the_batch(network: SlowClassifier) -> None:
    network.standardize = OverTheBatch()


@pytest.mark.parametrize(
    ("mistake", "expected", "word"),
    [
        (no_eps, {"equality": "partial", "kernels": "full"}, "eps"),
        (one_branch_dropped, {"equality": "none", "kernels": "none"}, "one part at a time"),
        (halves_swapped, {"equality": "none", "kernels": "none"}, "one part at a time"),
        (statistics_over_the_batch, {"equality": "none", "kernels": "none"}, "must read the same graph"),
    ],
)
def test_a_rewrite_that_is_not_the_same_function(submission, mistake, expected, word):
    network = rewritten()
    mistake(network)
    examined = submission(network)
    assert tiers(examined) == expected, examined.outcomes
    assert word in hint(examined, "equality")


class RightForTheFirst(nn.Module):
    """Right at batch 1, wrong for the others of a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.network = rewritten()

    def forward(self, image: Tensor) -> Tensor:
        logits = self.network(image)
        return logits[:1] + 0 * logits

    def signature(self):
        return self.network.signature()


def test_engine_that_is_right_at_batch_1_only(submission):
    assert tiers(submission(RightForTheFirst())) == {"equality": "none", "kernels": "none"}


def eps_by_batch(wrong_at: Callable[[np.ndarray], np.ndarray]) -> onnx.ModelProto:
    """The reference with an eps from a table, which is wrong at some batch sizes."""
    model = export_onnx(rewritten(), opset=OPSET)
    graph = model.graph
    table = np.where(wrong_at(np.arange(33)), 5e-4, 1e-5).astype(np.float32)
    graph.initializer.extend([numpy_helper.from_array(table, "table"), numpy_helper.from_array(np.array(0), "first")])
    next(node for node in graph.node if node.name == "/standardize/Add").input[1] = "eps"
    nodes = [
        helper.make_node("Shape", ["image"], ["sizes"], name="sizes"),
        helper.make_node("Gather", ["sizes", "first"], ["batch"], name="batch", axis=0),
        helper.make_node("Gather", ["table", "batch"], ["eps"], name="eps", axis=0),
        *graph.node,
    ]
    del graph.node[:]
    graph.node.extend(nodes)
    return model


@pytest.mark.parametrize(
    "wrong_at",
    [lambda n: ~np.isin(n, BATCHES), lambda n: n == 17, lambda n: (n > 16) & (n < 32)],
    ids=["right at four sizes", "wrong at one size", "wrong at large sizes"],
)
def test_the_worst_batch_size_counts(submission, wrong_at):
    """A cheat: the constant is right at the batch sizes that are measured on all images."""
    examined = submission(eps_by_batch(wrong_at))
    assert examined.outcomes[0].points == 0, examined.outcomes
    assert "is answered with" in message(examined, "equality")


def test_fixed_batch_cannot_serve(submission):
    examined = submission(rewritten(), dynamic_batch=False, batch=8)
    assert tiers(examined) == {"equality": "none", "kernels": "none"}
    assert "batch has to stay dynamic" in hint(examined, "equality")


def test_half_precision_is_no_fusion(submission):
    """Other kernels by another type: the count is one of FP32."""
    examined = submission(rewritten(), dtype="fp16")
    assert tiers(examined) == {"equality": "none", "kernels": "none"}
    assert "smaller type" in message(examined, "kernels")
    assert "float32" in hint(examined, "kernels")


def test_wrong_output_name_is_said(submission):
    model = export_onnx(rewritten(), opset=OPSET)
    model.graph.output[0].name = model.graph.node[-1].output[0] = "scores"
    assert "expected one called logits" in message(submission(model), "equality")


def test_an_output_of_another_shape_is_said(submission):
    network = rewritten()
    network.head = nn.Linear(64, 9)
    assert "shape (1, 9), expected (1, 10)" in message(submission(network), "equality")


# Cheats


def test_shipped_classifier_is_right_and_is_another_function(submission):
    """A cheat: the network that the given one was made from has 13 kernels and reads digits as well."""
    examined = submission(classifier("small"))
    assert tiers(examined) == {"equality": "none", "kernels": "none"}
    assert examined.figures["kernels"] < 14


class OneMatrix(nn.Module):
    """The linear map that comes closest to the network on 1347 digits."""

    def __init__(self) -> None:
        super().__init__()
        images = digits("train").images
        logits = slow_classifier()(torch.from_numpy(images)).numpy()
        pixels = images.reshape(len(images), -1)
        weight = np.linalg.solve(pixels.T @ pixels + 0.1 * np.eye(1024, dtype=np.float32), pixels.T @ logits)
        self.weight = nn.Parameter(torch.from_numpy(weight))

    def forward(self, image: Tensor) -> Tensor:
        return image.flatten(1) @ self.weight

    def signature(self):
        return slow_classifier().signature()


@pytest.mark.slow
def test_one_giant_matrix_is_another_function(submission):
    examined = submission(OneMatrix())
    assert tiers(examined) == {"equality": "none", "kernels": "none"}
    assert examined.figures["kernels"] <= 3


def test_pruned_network_is_right_on_digits_and_another_function(submission):
    network = rewritten()
    for conv in (module for module in network.modules() if isinstance(module, nn.Conv2d)):
        weight = conv.weight.data
        weight[weight.abs() < weight.abs().quantile(0.1)] = 0
    fresh = fresh_digits(512, seed=5)
    assert (network(torch.from_numpy(fresh.images)).argmax(1).numpy() == fresh.labels).mean() > 0.98
    assert tiers(submission(network)) == {"equality": "none", "kernels": "none"}


class DigitsOnly(nn.Module):
    """The right logits for images that look like digits, and cheap ones for the others: noise tells."""

    def __init__(self) -> None:
        super().__init__()
        self.network = rewritten()

    def forward(self, image: Tensor) -> Tensor:
        like_a_digit = (image.mean(dim=(1, 2, 3)) < 0.45).float()[:, None]
        return self.network(image) * like_a_digit

    def signature(self):
        return self.network.signature()


def test_equal_on_digits_alone_is_not_equal(submission):
    examined = submission(DigitsOnly())
    assert tiers(examined) == {"equality": "none", "kernels": "none"}
    assert "noise" in message(examined, "equality")


class UsualSizes(nn.Module):
    """The right logits for pixels up to a size, or from a size on."""

    def __init__(self, *, least: float = 0, most: float = torch.inf) -> None:
        super().__init__()
        self.network, self.least, self.most = rewritten(), least, most

    def forward(self, image: Tensor) -> Tensor:
        return self.network(image.clamp(-self.most, self.most) * (image.abs() >= self.least))

    def signature(self):
        return self.network.signature()


@pytest.mark.slow
@pytest.mark.parametrize("limits", [{"most": 24.0}, {"most": 300.0}, {"least": 0.004}])
def test_cheat_equal_for_usual_sizes_alone(submission, limits):
    examined = submission(UsualSizes(**limits))
    assert tiers(examined) == {"equality": "none", "kernels": "none"}
    assert "faint and loud noise" in message(examined, "equality")


def in_a_branch(network: nn.Module, operator: str) -> onnx.ModelProto:
    """The network as the body of an If that is always true, or of a Loop that runs once."""
    graph = compose.add_prefix(export_onnx(network, opset=OPSET), "body_", rename_outputs=True).graph
    for node in graph.node:
        node.input[:] = ["image" if name == "body_image" else name for name in node.input]
    body = helper.make_graph(list(graph.node), "body", [], [graph.output[0]], list(graph.initializer))
    true = helper.make_tensor("true", TensorProto.BOOL, [], [True])
    if operator == "If":
        node = helper.make_node("If", ["true"], ["logits"], name="same", then_branch=body, else_branch=body)
    else:
        for name, kind in (("i", TensorProto.INT64), ("go_on", TensorProto.BOOL)):
            body.input.append(helper.make_tensor_value_info(name, kind, []))
        body.node.append(helper.make_node("Identity", ["go_on"], ["goes_on"]))
        body.output.insert(0, helper.make_tensor_value_info("goes_on", TensorProto.BOOL, []))
        node = helper.make_node("Loop", ["", "true"], ["logits"], name="same", body=body)
    twin = helper.make_node(
        "Identity", ["true"], ["unused"], name="same"
    )  # a second node of that name hides the first from a dict
    pixels = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 1, 32, 32])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 10])
    whole = helper.make_graph([node, twin], "graph", [pixels], [logits], [true])
    return helper.make_model(whole, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)


@pytest.mark.parametrize("operator", ["If", "Loop"])
def test_control_flow_that_hides_kernels_is_rejected(submission, operator):
    """A loop's body stands once in the layer table, however often it runs."""
    examined = submission(in_a_branch(slow_classifier(), operator))
    assert tiers(examined) == {"equality": "none", "kernels": "none"}
    assert f"({operator}) is control flow" in message(examined, "kernels")


def test_far_fewer_kernels_than_the_reference_are_for_an_instructor():
    found = LAB._kernels({"kernels": 10, "kernels_given": 28, "kernels_reference": 14})
    assert (found.tier, found.points) == ("inconclusive", 0)
    assert LAB._kernels({"kernels": 11, "kernels_given": 28, "kernels_reference": 14}).tier == "full"


# Causes


@pytest.mark.parametrize(
    ("changes", "tier", "said"),
    [
        ({"layout": None}, "partial", "Missing, although they cost kernels: 1"),
        (
            {"casts": ["/standardize/Cast"], "reshape": ["/pool/Reshape"]},
            "none",
            "do not cost kernels: 2. Half of the points allow fewer than half of the 3 suspects that do not cost kernels.",
        ),
        ({"head": ["/head/Gemm"]}, "partial", "'/head/Gemm' is not a node of the given network"),
        ({"concat": ["/block3/conv1/left/Conv", "/block1/conv1/Conv"]}, "partial", "belongs to another part"),
        ({"residual": None, "head": None, "concat": ["/"]}, "none", "6 of 9"),
    ],
)
def test_a_wrong_judgment_costs_points(name_causes, changes, tier, said):
    examined = name_causes(**changes)
    assert tiers(examined) == {"causes": tier}, examined.outcomes
    assert said in message(examined, "causes")
    assert "alone back" in hint(examined, "causes")


def test_a_compiler_without_the_onnx_package_has_the_same_evidence(tmp_path, monkeypatch):
    """TensorRT 8.6's interpreter has none: on the H200 the reference lost its points, for no node was known there."""
    command = bare_python(tmp_path, "numpy", "tensorrt-rtx-cu13", "tensorrt-rtx-cu13-libs", "tensorrt-rtx-cu13-bindings")
    monkeypatch.setenv("COURSE_ENVIRONMENTS", f"bare={command}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    there = given_layers("tensorrt_rtx@bare")
    assert there.operators == given_layers("tensorrt_rtx").operators != {}


def test_naming_everybody_is_no_answer(name_causes, examiner):
    """A cheat: every suspect with every node that the network has of it."""
    nodes = given_layers(examiner.builder).operators
    parts = {suspect: ["/" + path.replace(".", "/") + "/" for path in paths] for suspect, paths in PARTS.items()}
    everything = {suspect: [n for n in nodes if n.startswith(tuple(paths))] for suspect, paths in parts.items()}
    assert all(everything.values())
    assert tiers(name_causes(**everything)) == {"causes": "none"}
    assert tiers(name_causes("{}")) == {"causes": "none"}


@pytest.mark.parametrize("without", made.BLANKETS)
def test_cheat_naming_all_suspects_but_few(name_causes, without):
    examined = name_causes(json.dumps(made.blanket(without)))
    assert tiers(examined) == {"causes": "none"}, message(examined, "causes")


def test_cheat_naming_all_suspects_but_one_for_a_builder_with_two_innocent_ones(tmp_path):
    """OpenVINO has a kernel for the reshape, too. Naming all suspects but an innocent one earned half of the points."""
    openvino = Examiner(builder="openvino")
    assert {suspect for suspect, cost in costs("openvino").items() if not cost} == {"casts", "primitives"}
    for innocent in ("casts", "primitives"):
        named = {**EVIDENCE, "reshape": [made.NODES["reshape"]], innocent: [made.NODES[innocent]]}
        (tmp_path / "causes.json").write_text(json.dumps(named))
        examined = LAB.examine(tmp_path, openvino, only="causes")
        assert tiers(examined) == {"causes": "none"} and "half of the 2 suspects" in message(examined, "causes"), (
            examined.outcomes
        )


@pytest.mark.parametrize("innocent", ["casts", "primitives", "reshape"])
def test_one_innocent_suspect_may_be_named_for_half_of_the_points(name_causes, innocent):
    nodes = [made.NODES[innocent]]
    assert tiers(name_causes(**{innocent: nodes})) == {"causes": "partial"}
    assert tiers(name_causes(**{innocent: nodes, "head": None})) == {"causes": "partial"}


def table(*kernels: tuple[str, ...], nodes: tuple[str, ...] = ()) -> LayerTable:
    every = dict.fromkeys([*nodes, *(node for kernel in kernels for node in kernel)], "Op")
    return LayerTable(tuple(Layer(f"k{i}", "kgen", onnx_nodes=kernel) for i, kernel in enumerate(kernels)), every)


def test_another_builder_may_see_other_costs():
    """What costs nothing there need not be named, what is guilty here may be, and what costs there may be named."""
    given = table(("/head/a",), ("/norm/a",), nodes=("/head/b", "/act/a"))
    measured = {**dict.fromkeys(PARTS, 0), "head": 1, "primitives": 2}
    assert lab02_causes.judge({"head": ("/head/a",)}, measured, given).wrong == 0
    assert lab02_causes.judge({"head": ("/head/a",), "primitives": ("/norm/a",)}, measured, given).wrong == 0
    assert lab02_causes.judge({"head": ("/head/a",), "activation": ("/act/a",)}, measured, given).wrong == 0
    assert lab02_causes.judge({}, measured, given).missing == ("head",)
    assert lab02_causes.judge({"head": ("/head/a",), "casts": ("/head/a",)}, measured, given).innocent == ("casts",)
    removed = lab02_causes.judge({"head": ("/head/b",)}, measured, given)
    assert removed.evidence == {"head": "'/head/b' is not in any kernel, because the compiler removed it"}


def test_a_table_that_names_subgraphs_by_their_ends_cannot_refute_evidence():
    """TensorRT 8.6 on what it gives to its other compiler."""
    given = LayerTable(
        (Layer("{ForeignNode[/head/a.../head/c]}", "Myelin"),), dict.fromkeys(("/head/a", "/head/b", "/head/c"), "Op")
    )
    measured = {**dict.fromkeys(PARTS, 0), "head": 1}
    assert lab02_causes.judge({"head": ("/head/b",)}, measured, given).wrong == 0
    assert lab02_causes.judge({"head": ("/head/d",)}, measured, given).wrong == 1


# Hostile files


@pytest.mark.parametrize("data", [b"", b"\x00" * 40, b"not a model", b"\xff" * 5000])
def test_a_file_that_is_no_model_is_one_line(tmp_path, examiner, data):
    (tmp_path / "model.onnx").write_bytes(data)
    examined = LAB.examine(tmp_path, examiner, only="equality")
    assert examined.points == 0
    assert "\n" not in message(examined, "equality")


@pytest.mark.parametrize("change", hostile.CHANGES, ids=lambda change: change.__name__)
def test_hostile_model_is_one_short_line(submission, reference, change):
    examined = submission(hostile.changed(onnx.load(reference / "model.onnx"), change))
    if change not in (hostile.a_name_without_end, hostile.a_name_of_two_lines):  # names are cleaned before anything reads them
        assert examined.points == 0, examined.outcomes
    for outcome in examined.outcomes:
        assert len(outcome.message.splitlines()) == 1 and len(outcome.message) < 1200, outcome
    json.dumps(dict(examined.figures), allow_nan=False)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "longer than"),
        ("[" * 60_000, "not JSON"),
        ("[]", "has to be an object"),
        ("NaN", "has to be an object"),
        ('{"fame": ["/a"]}', "names 'fame'; the suspects are activation, branches"),
        ('{"head": []}', "a list with at least one"),
        ('{"head": "/head/a"}', "a list with at least one"),
        ('{"head": [1]}', "a list with at least one"),
    ],
)
def test_causes_that_cannot_be_read_are_one_line(name_causes, text, said):
    examined = name_causes(text)
    assert tiers(examined) == {"causes": "none"}
    assert said in message(examined, "causes")
    assert "\n" not in message(examined, "causes")


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("causes") / "causes.json"


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text() | st.sampled_from([*PARTS, "/head/a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*PARTS, "x"]), inner, max_size=3),
)


@drawn(data=st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_file_is_causes_or_one_clear_line(file, data):
    file.write_bytes(data)
    try:
        found = lab02_causes.read(file)
    except CourseError as error:
        assert "causes.json" in str(error) and "\n" not in str(error)
    else:
        assert all(suspect in PARTS and nodes and all(isinstance(n, str) for n in nodes) for suspect, nodes in found.items())


# The examiner


def test_a_builder_that_tells_no_kernels_is_the_examiners_fault(reference):
    with pytest.raises(ExaminerFault, match="does not tell which kernels"):
        LAB.examine(reference, Examiner(builder="onnxruntime"))


def test_a_builder_that_needs_no_rewriting_is_the_examiners_fault(reference, examiner, monkeypatch):
    """Otherwise the given network would be right and good enough."""
    monkeypatch.setattr("course_lib.labs.lab02_fusion.lab.reference_kernels", lambda builder: 27)
    with pytest.raises(ExaminerFault, match="by itself"):
        LAB.examine(reference, examiner, only="kernels")


def test_a_runner_that_fails_on_the_reference_is_the_examiners_fault(reference, examiner, monkeypatch):
    def reject(*_, **__):
        raise BuildError("no such operator")

    LAB.examine(reference, examiner, only="kernels")  # the builder has counted by now
    monkeypatch.setattr("course_lib.labs.framework.reference.PlanCache.build", reject)
    with pytest.raises(ExaminerFault, match="cannot be prepared: no such operator"):
        LAB.examine(reference, examiner, only="equality")


# Without the reference


@pytest.fixture
def in_the_bundle(monkeypatch: pytest.MonkeyPatch):
    """As learners have the course: the modules of the reference are placeholders."""
    counts._both.cache_clear()
    for place in (package, "reference"), (lab02, "reference_causes"), (lab02_causes, "reference_causes"):
        monkeypatch.setattr(*place, withheld)
    yield
    counts._both.cache_clear()


def _as_learner(folder: Path) -> dict[str, Outcome]:
    return {one.task.id: one for one in LAB.examine_as_learner(folder, Quick(seed=5)).outcomes}


def test_a_learner_without_the_reference_is_told_what_was_measured(tmp_path, request):
    LAB.write_reference(tmp_path)
    request.getfixturevalue("in_the_bundle")
    found = _as_learner(tmp_path)
    assert {name: (one.tier, one.mark) for name, one in found.items()} == {
        "equality": ("full", "passed"),
        "kernels": ("inconclusive", "open"),
        "causes": ("inconclusive", "open"),
    }
    assert "14 kernels; the given network has 28. Right so far. Not compared" in found["kernels"].message
    assert "6 of 9 suspects are named. Right so far." in found["causes"].message
    with pytest.raises(ReferenceAbsent):
        LAB.examine(tmp_path, Quick(seed=5))


@pytest.mark.parametrize("mistake", ["nothing changed", "another function"])
def test_a_learner_without_the_reference_is_told_mistakes(mistake, tmp_path, request):
    network = slow_classifier() if mistake == "nothing changed" else rewritten()
    if mistake == "another function":
        one_branch_dropped(network)
    export_onnx(network, tmp_path / "model.onnx", opset=OPSET)
    (tmp_path / "causes.json").write_text(json.dumps({"casts": ["/head/head.1/MatMul"], "head": ["/nowhere"]}))
    request.getfixturevalue("in_the_bundle")
    found = _as_learner(tmp_path)
    assert [found[task].tier for task in ("equality", "kernels")] == ["none", "none"]
    assert "At most half of the points." in found["causes"].message
    assert "Evidence for casts: '/head/head.1/MatMul' belongs to another part" in found["causes"].message
    assert "Evidence for head: '/nowhere' is not a node of the given network" in found["causes"].message
