"""Lab 04 against its reference, mistakes that learners make, and cheats for its metrics."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from hypothesis import given as drawn
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from course_lib import labs
from course_lib.benchmark import sqnr_db
from course_lib.engines import Layer, LayerTable, LayerTensor, build
from course_lib.engines.backends.onnxruntime import session
from course_lib.errors import BuildError, CourseError, ExaminerFault
from course_lib.grading.isolation import sandbox
from course_lib.grading.judge.judging import judge
from course_lib.labs import Examination, Examiner
from course_lib.labs.framework import withheld
from course_lib.labs.framework.emulation import emulated
from course_lib.labs.framework.examination import TimedWorker
from course_lib.labs.framework.task import Outcome
from course_lib.labs.lab04_mixed_precision import (
    findings as lab04_findings,
)
from course_lib.labs.lab04_mixed_precision import (
    kernels as lab04_kernels,
)
from course_lib.labs.lab04_mixed_precision import (
    lab,
)
from course_lib.labs.lab04_mixed_precision import (
    reference as lab04_reference,
)
from course_lib.labs.lab04_mixed_precision.judge import output_error
from course_lib.labs.lab04_mixed_precision.judge import speed as lab04_speed
from course_lib.labs.lab04_mixed_precision.kernels import Kernels
from course_lib.labs.lab04_mixed_precision.lab import MixedPrecision
from course_lib.labs.lab04_mixed_precision.network import STREAM, Norm, loud_encoder
from course_lib.labs.lab04_mixed_precision.ranges import LARGEST, magnitudes, magnitudes_figure
from course_lib.labs.lab04_mixed_precision.reference import KEEP, OPSET, RECIPE, scale_queries
from course_lib.models import digits, encoder, export_onnx, fresh_digits
from course_lib.precision import cast, emulate
from course_lib.recipe import Profile
from tests import slow_cases
from tests.labs.quick import tiers
from tests.labs.submissions import lab04 as lab04_submissions
from tests.labs.submissions.lab04 import with_layer_norms

LAB = labs.find("lab04")
assert isinstance(LAB, MixedPrecision)
SCORES = ("/blocks.2/attention/MatMul", "/blocks.2/attention/Div")
GAINED = KEEP[-2:]
VANISHING = KEEP[:4]  # the norm whose variance is below the smallest FP16 number
HARMLESS = ("/blocks.3/mlp/Exp", "/blocks.3/mlp/Add", "/blocks.3/mlp/Div")  # they overflow, and the result is right
NARROW = Profile(tokens={"min": (1, 16, 32), "opt": (8, 32, 32), "max": (32, 32, 32)})


@dataclass(frozen=True)
class SharedExaminer(Examiner):
    """The course's own two engines are started once for all examinations."""

    kept: dict[str, TimedWorker] = field(default_factory=dict, repr=False, compare=False)

    def baseline(self, source):
        if "baseline" not in self.kept:
            self.kept["baseline"] = super().baseline(source).__enter__()
        return contextlib.nullcontext(self.kept["baseline"])

    def reference(self, plan):
        if "reference" not in self.kept:
            self.kept["reference"] = super().reference(plan).__enter__()
        return contextlib.nullcontext(self.kept["reference"])


@pytest.fixture(scope="module")
def examiner() -> Iterator[Examiner]:
    examiner = SharedExaminer(seed=4)
    yield examiner
    for worker in examiner.kept.values():
        worker.__exit__()


@pytest.fixture(scope="module")
def reference(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("reference")
    LAB.write_reference(folder)
    return folder


@pytest.fixture(scope="module")
def given() -> onnx.ModelProto:
    return lab04_reference.given()


@pytest.fixture(scope="module")
def scaled() -> onnx.ModelProto:
    """The network with its scores scaled before the product, float32."""
    network = loud_encoder()
    scale_queries(network)
    return export_onnx(network, opset=OPSET)


Examine = Callable[..., Examination]


@pytest.fixture
def submission(tmp_path, examiner) -> Examine:
    """Examine a model for error and kernels."""

    def examine(model: onnx.ModelProto, **changes) -> Examination:
        (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
        RECIPE.model_copy(update=changes).save(tmp_path / "recipe.toml")
        return LAB.examine(tmp_path, examiner, only="kernels")

    return examine


def said(examined: Examination, task: str, what: str = "message") -> str:
    return next(getattr(outcome, what) for outcome in examined.outcomes if outcome.task.id == task)


FULL = {"error": "full", "kernels": "full"}
NOTHING = {"error": "none", "kernels": "none"}


class InProcess:
    """An engine for `lab04_error.error` without a process: what a model answers when every tensor is rounded as it says."""

    def __init__(self, model: onnx.ModelProto) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = 1, 4
        data = emulate(onnx.shape_inference.infer_shapes(model)).SerializeToString()
        self.session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])

    def infer(self, feeds):
        return dict(zip(["logits"], self.session.run(None, dict(feeds)), strict=True))


@pytest.fixture(scope="module")
def error_of(given) -> Callable[[onnx.ModelProto], labs.Outcome]:
    """The outcome of the task `error` for a model, without its kernels."""
    want, reference = InProcess(given), InProcess(onnx.load_model_from_string(lab04_reference.serialized()))
    return lambda model: LAB._error(lab.error(want, reference, InProcess(model), Examiner(seed=4)))


# The network


def test_the_given_network_reads_digits_and_is_not_the_shipped_one():
    held_out = digits("test")
    tokens = torch.from_numpy(held_out.tokens().copy())
    logits = loud_encoder()(tokens)
    assert (logits.argmax(1).numpy() == held_out.labels).mean() >= 0.97
    assert sqnr_db(logits.numpy(), encoder()(tokens).detach().numpy()) < 30


def test_it_really_overflows_in_fp16(given):
    """Stored in FP16 its logits are NaN; with the nodes that alone give NaN kept in FP32 they are finite and wrong."""
    tokens = fresh_digits(16, seed=1).tokens()
    want = InProcess(given).infer({"tokens": tokens})["logits"]
    assert np.isnan(InProcess(cast(given, "fp16")).infer({"tokens": tokens})["logits"]).all()
    finite = InProcess(cast(given, "fp16", keep=[*VANISHING, *SCORES, *GAINED])).infer({"tokens": tokens})["logits"]
    assert np.isfinite(finite).all() and sqnr_db(want, finite) < 3


def test_which_tensors_overflow(given):
    largest = magnitudes(given, fresh_digits(256, seed=1).tokens())
    beyond = {node for node, size in largest.items() if size > LARGEST}
    assert beyond == {*KEEP, *SCORES, *HARMLESS} - {*VANISHING}
    assert max(size for node, size in largest.items() if node not in beyond) < 0.75 * LARGEST
    assert min(largest[node] for node in HARMLESS) > 100 * LARGEST and max(largest[node] for node in VANISHING) < 1e-3
    assert "21 of" in magnitudes_figure(largest).get_suptitle()


@pytest.mark.slow
def test_an_overflow_that_is_kept_changes_nothing(error_of, scaled):
    """The right answer with Swish in FP32 as well is not better: the infinity does no harm."""
    plain, careful = (error_of(cast(scaled, "fp16", keep=keep)) for keep in (KEEP, [*KEEP, *HARMLESS]))
    assert plain.tier == careful.tier == "full"


def test_scaling_the_queries_is_the_same_function(given, scaled):
    tokens = fresh_digits(8, seed=2).tokens()
    want, have = (InProcess(model).infer({"tokens": tokens})["logits"] for model in (given, scaled))
    assert sqnr_db(want, have) > 110


# Right answers


def test_the_judge_gives_the_reference_full_marks(reference):
    """In the sandbox, where there is one."""
    verdict = judge(LAB, reference, trusted=bool(sandbox.problem()))
    assert not verdict.fault, verdict.fault
    assert tiers(verdict) == {"find": "full", **FULL}, verdict.outcomes
    assert (verdict.score, verdict.max_score) == (10, 10)
    assert verdict.figures["fp16_share"] > 0.8
    assert verdict.figures["attention_fused"] == 4
    assert verdict.figures["sqnr_db"] > 62  # thresholds follow the reference, and its own floor is 50


@pytest.mark.slow
def test_divided_queries_and_a_gain_folded_into_the_weights(submission):
    examined = submission(with_layer_norms())
    assert tiers(examined) == FULL, examined.outcomes


def test_a_quiet_stream_is_right_without_a_keep_list(error_of):
    """A third one: the loudness itself undone."""
    network = loud_encoder()
    scale_queries(network)
    mlp = network.blocks[1].mlp
    mlp.down.weight.data *= mlp.gain
    mlp.gain = torch.ones_like(mlp.gain)
    for writer in (network.embed, *(layer for b in network.blocks for layer in (b.attention.out, b.mlp.down))):
        writer.weight.data /= STREAM
        writer.bias.data /= STREAM
    network.positions /= STREAM
    for module in network.modules():
        if isinstance(module, Norm):
            module.eps /= (STREAM * module.scale) ** 2
            module.scale = 1.0
    assert error_of(cast(export_onnx(network, opset=OPSET), "fp16")).tier == "full"


# Mistakes


def test_nothing_handed_in_has_none(tmp_path, examiner):
    examined = LAB.examine(tmp_path, examiner)
    assert examined.points == 0
    assert "model.onnx is missing" in said(examined, "error")
    assert "Task 2 writes" in said(examined, "kernels", "hint")
    assert "findings.toml is missing" in said(examined, "find")


def test_a_plain_cast_is_fast_and_wrong(submission, given):
    examined = submission(cast(given, "fp16"))
    assert tiers(examined) == NOTHING
    assert "NaN or infinity in 77 requests, first with 1 digits of 16 rows" in said(examined, "error")
    assert "reader" in said(examined, "error", "hint")
    assert "wrong engine" in said(examined, "kernels")


@pytest.mark.slow
def test_attention_kept_in_fp32_is_split(submission, given):
    examined = submission(cast(given, "fp16", keep=[*KEEP, *SCORES]))
    assert tiers(examined) == {"error": "full", "kernels": "partial"}
    assert "3 of 4 attentions are one kernel" in said(examined, "kernels")
    assert "product be made small" in said(examined, "kernels", "hint")


def test_whole_norms_kept_cost_kernels(tmp_path, examiner, scaled):
    norms = [node.name for node in scaled.graph.node if "norm" in node.name]
    onnx.save(cast(scaled, "fp16", keep=[*norms, *GAINED]), tmp_path / "model.onnx")
    layers = lab04_kernels.prove(tmp_path / "model.onnx", RECIPE, examiner).layers
    outcome = LAB._kernels(Kernels.of(layers), lab04_kernels.reference_kernels(examiner.builder))
    assert (outcome.tier, outcome.points) == ("partial", 2)
    assert "have to be kept" in outcome.hint


def test_whole_blocks_kept_are_no_fp16_engine(submission, scaled):
    blocks = [node.name for node in scaled.graph.node if node.name.startswith(("/blocks.1/", "/blocks.2/"))]
    examined = submission(cast(scaled, "fp16", keep=[*KEEP, *blocks]))
    assert tiers(examined) == NOTHING
    assert "this is not an FP16 engine" in said(examined, "error")
    assert "break alone" in said(examined, "kernels", "hint")


@pytest.mark.parametrize(
    ("keep", "tier", "points", "word"),
    slow_cases.after(
        2,
        [
            ([*VANISHING, *GAINED], "none", 0, "zero, not NaN"),
            ([n for n in KEEP if not n.startswith("/blocks.2")], "none", 0, "zero, not NaN"),
            ([n for n in KEEP if not n.startswith("/blocks.1/norm")], "partial", 2, "still overflows"),
            ([n for n in KEEP if "ReduceMean" not in n or n in VANISHING], "none", 0, "zero, not NaN"),
            ([n for n in KEEP if "down" not in n], "none", 0, "reader kept too"),
            ([n for n in KEEP if n not in VANISHING], "none", 0, "first that is not finite"),
        ],
    ),
)
def test_a_keep_list_with_a_hole(error_of, scaled, keep, tier, points, word):
    """Only what gives NaN kept; a block's norms forgotten; makers kept and readers not."""
    outcome = error_of(cast(scaled, "fp16", keep=keep))
    assert (outcome.tier, outcome.points) == (tier, points), outcome.message
    assert word in outcome.hint


def test_scores_divided_twice_are_another_function(error_of):
    network = loud_encoder()
    attention = network.blocks[2].attention
    attention.scores = lambda q, k: (q / attention.temperature) @ (k / attention.temperature).transpose(-1, -2)
    assert error_of(cast(export_onnx(network, opset=OPSET), "fp16", keep=KEEP)).tier == "none"


def test_bf16_rounds_too_coarsely(error_of, scaled):
    outcome = error_of(cast(scaled, "bf16"))
    assert outcome.tier == "partial"
    assert "rounds more coarsely" in outcome.hint


@pytest.mark.parametrize(
    ("changes", "message", "hint"),
    [
        ({"precision": "fp32"}, 'recipe.toml says precision = "fp32"', "statement about the graph"),
        ({"profiles": ()}, "recipe.toml has 0 profiles", "`service`"),
        ({"profiles": 2 * RECIPE.profiles}, "recipe.toml has 2 profiles", "`service`"),
        ({"profiles": (NARROW,)}, "does not accept 1 x 48 rows", "`service`"),
    ],
)
def test_a_recipe_that_does_not_fit(submission, given, changes, message, hint):
    examined = submission(given, **changes)
    assert tiers(examined) == NOTHING
    assert message in said(examined, "error")
    assert hint in said(examined, "kernels", "hint")


def test_wrong_outputs_are_said(submission, scaled):
    model = cast(scaled, "fp16", keep=KEEP)
    model.graph.output[0].name = model.graph.node[-1].output[0] = "scores"
    examined = submission(model)
    assert tiers(examined) == NOTHING
    assert "expected one called logits" in said(examined, "error")
    assert "emulate" in said(examined, "error", "hint")


# Cheats


def test_an_fp32_engine_labeled_fp16(submission, given):
    examined = submission(given)
    assert tiers(examined) == NOTHING
    assert "none of 63 kernels computes in Half" in said(examined, "kernels")


def rounded_behind(model: onnx.ModelProto, operators: set[str]) -> onnx.ModelProto:
    """FP32, with a cast to FP16 and back behind every node of these types."""
    dressed = copy.deepcopy(model)
    floats = {v.name for v in onnx.shape_inference.infer_shapes(model).graph.value_info if v.type.tensor_type.elem_type == 1}
    nodes = []
    for node in dressed.graph.node:
        nodes.append(node)
        name = node.output[0]
        if node.op_type in operators and name in floats:
            node.output[0] = f"{name}/wide"
            nodes.append(
                helper.make_node("Cast", [f"{name}/wide"], [f"{name}/half"], f"{node.name}/down", to=TensorProto.FLOAT16)
            )
            nodes.append(helper.make_node("Cast", [f"{name}/half"], [name], f"{node.name}/up", to=TensorProto.FLOAT))
    del dressed.graph.node[:], dressed.graph.value_info[:]
    dressed.graph.node.extend(nodes)
    onnx.checker.check_model(dressed, full_check=True)
    return dressed


def test_casts_sprinkled_over_fp32(submission, scaled):
    """Half stands all over the table, and every product is one of FP32."""
    examined = submission(rounded_behind(scaled, {"Add", "Softmax", "Slice", "Split", "Transpose", "Reshape", "Sub", "Div"}))
    assert tiers(examined) == NOTHING
    assert "this is not an FP16 engine" in said(examined, "kernels")


def test_fp16_attention_in_an_fp32_network(submission, scaled):
    """All four attentions fused, and nothing else in FP16."""
    inside = ("/qkv/", "/out/")
    attention = [n.name for n in scaled.graph.node if "/attention/" in n.name and not any(part in n.name for part in inside)]
    examined = submission(cast(scaled, "fp16", keep=[n.name for n in scaled.graph.node if n.name not in attention]))
    assert tiers(examined) == NOTHING


def clamped(model: onnx.ModelProto) -> onnx.ModelProto:
    """FP16 with every overflow cut at the largest number."""
    half = cast(model, "fp16", keep=VANISHING)
    for name, value in (("low", -LARGEST), ("high", LARGEST)):
        half.graph.initializer.append(numpy_helper.from_array(np.array(value, np.float16), name))
    nodes = []
    for node in half.graph.node:
        nodes.append(node)
        if node.name in {*KEEP, *SCORES, *HARMLESS} - {*VANISHING}:
            name = node.output[0]
            node.output[0] = f"{name}/inf"
            nodes.append(helper.make_node("Clip", [f"{name}/inf", "low", "high"], [name], f"{node.name}/clip"))
    del half.graph.node[:]
    half.graph.node.extend(nodes)
    return half


def test_clamping_hides_infinity_and_changes_the_function(error_of, given):
    outcome = error_of(clamped(given))
    assert outcome.tier == "none"
    assert "Finite logits can be wrong" in outcome.hint


def test_the_shipped_encoder_is_another_network(error_of):
    """A cheat: what the given one was made from, which is quiet and fits into FP16."""
    assert error_of(cast(export_onnx(encoder(), opset=OPSET), "fp16")).tier == "none"


@pytest.mark.slow
def test_a_pruned_network_is_another_function(error_of):
    network = loud_encoder()
    scale_queries(network)
    for layer in (module for module in network.modules() if isinstance(module, nn.Linear)):
        layer.weight.data[layer.weight.abs() < layer.weight.abs().quantile(0.1)] = 0
    assert error_of(cast(export_onnx(network, opset=OPSET), "fp16", keep=KEEP)).tier == "none"


def test_a_kernel_that_calls_itself_attention_is_none():
    """Kernels of products carry their node's name, which a submission chooses."""
    half, wide = (LayerTensor("x", (4,), dtype) for dtype in ("Half", "Float"))
    table = LayerTable(
        (
            Layer("_gemm_mha_v2_myl0_1", "kgen", (half,)),
            Layer("_gemm_mha_v2_myl0_2", "gemm", (half,)),
            Layer("_gemm_mha_v2_myl0_3", "kgen", (wide,)),
            Layer("__myl_Cast", "signal", (wide,)),
        )
    )
    assert Kernels.of(table) == Kernels(total=3, wide=1, attention=1, products=0)
    assert Kernels.of(LayerTable()).share == 0


# Findings


@pytest.fixture(scope="module")
def find(tmp_path_factory) -> Callable[[dict[str, float] | str], labs.Outcome]:
    """The outcome of the task `find` for some findings, or for a text."""
    folder = tmp_path_factory.mktemp("findings")

    def examine(findings: dict[str, float] | str) -> labs.Outcome:
        if isinstance(findings, str):
            (folder / "findings.toml").write_text(findings)
        else:
            lab04_findings.write(findings, folder / "findings.toml")
        return LAB.examine(folder, Examiner(seed=6), only="find").outcomes[0]

    return examine


def test_one_node_a_tensor_is_enough(find):
    known = lab04_reference.findings()
    readers = {node: size for node, size in known.items() if node.endswith(("ReduceMean_1", "down/MatMul", "attention/MatMul"))}
    assert len(readers) == 10
    assert find(readers).tier == "full"


@pytest.mark.slow
def test_a_limit_on_the_magnitude_is_not_an_answer(find, given):
    """What exceeds 65 504 is neither all that breaks nor only that: half of the points, with words for each of the two mistakes."""
    largest, right = magnitudes(given, digits("test").tokens()[:64]), lab04_reference.findings()
    loud = {node: size for node, size in largest.items() if size > LARGEST}
    outcome = find(loud)
    assert (outcome.tier, outcome.points) == ("partial", 1)
    assert "3 of them overflow, and the logits stay right" in outcome.message and "too small for FP16" in outcome.message
    assert outcome.hint == lab.BY_MAGNITUDE
    harmless = find({**loud, **right})
    assert (harmless.tier, harmless.points, harmless.hint) == ("partial", 1, lab.HARMLESS)
    assert "such as /blocks.3/mlp/" in harmless.message and "too small" not in harmless.message
    no_underflow = find({node: size for node, size in right.items() if node not in VANISHING})
    assert (no_underflow.tier, no_underflow.points, no_underflow.hint) == ("partial", 1, lab.VANISHED)
    assert "too small for FP16, not too large" in no_underflow.message and "harmless" not in no_underflow.message


def test_neither_end_of_fp16_decides_alone(find, given):
    """Everything beyond FP16 at either end, by magnitude: the harmless overflows are still among it."""
    largest, right = magnitudes(given, digits("test").tokens()[:64]), lab04_reference.findings()
    extreme = {node: size for node, size in largest.items() if size > LARGEST or node in VANISHING}
    assert extreme.keys() - right.keys() == {*HARMLESS, "/blocks.2/attention/Div"}
    assert find(extreme).tier == "partial"


def test_findings_with_mistakes(find):
    """Only what gives NaN; harmless nodes; and the sizes of what nodes write, where they read larger ones."""
    makers = {
        node: size for node, size in lab04_reference.findings().items() if not node.endswith(("ReduceMean_1", "down/MatMul"))
    }
    only_nan = find({node: size for node, size in makers.items() if "norm" not in node})
    assert (only_nan.tier, only_nan.points) == ("none", 0)
    assert "finite, wrong" in only_nan.hint
    harmless = find({**makers, "/norm/Add": 40_000.0, "/blocks.0/norm1/Mul": 26_000.0})
    assert (harmless.tier, harmless.points) == ("partial", 1)
    assert "harmless alone: 2, such as /norm/Add" in harmless.message and "one node at a time" in harmless.hint
    del makers["/blocks.3/norm1/Mul"]
    misread = find({**makers, "/norm/Mul": 40_000.0})
    assert (misread.tier, misread.points) == ("partial", 1)
    assert "factor of 2 for /norm/Mul" in misread.message and "reads and what it writes" in misread.hint


def test_naming_everything_is_no_answer(find, given):
    """A cheat, and one that reads fewer nodes than are taken."""
    largest = magnitudes(given, digits("test").tokens()[:16])
    assert "at most 64 are read" in find(largest).message
    most = sorted(largest, key=lambda node: -largest[node])[:24]
    assert find({node: largest[node] for node in most}).tier == "none"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has to be one table [largest]"),
        ("largest = 3", "has to be one table [largest]"),
        ("[largest]", "has to be one table [largest]"),
        ("[largest]\n[other]\n", "has to be one table [largest]"),
        ("[largest", "is not TOML"),
        ("a = " + "[" * 5000, "is not TOML"),
        ("#" * 70_000, "is longer than"),
        ('[largest]\n"/norm/Mul" = inf', "a positive number for '/norm/Mul', found inf"),
        ('[largest]\n"/norm/Mul" = true', "a positive number"),
        ('[largest]\n"/norm/Mul" = 1' + "0" * 400, "more than 64 bits"),
        ('[largest]\n"/norm/Mul" = "70000"', "a positive number"),
        ('[largest]\n"/nothing" = 70000', "'/nothing', which is not a node of the given network"),
    ],
)
def test_findings_that_cannot_be_read_are_one_line(find, text, message):
    outcome = find(text)
    assert outcome.tier == "none"
    assert message in outcome.message and "\n" not in outcome.message


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("findings") / "findings.toml"


@drawn(data=st.binary(max_size=200) | st.text(max_size=80).map(lambda text: f'[largest]\n"{text}" = 1e5'.encode()))
def test_any_file_is_findings_or_one_clear_line(file, data):
    file.write_bytes(data)
    try:
        found = lab04_findings.read(file)
    except CourseError as error:
        assert "findings.toml" in str(error) and "\n" not in str(error)
    else:
        assert found and all(size > 0 for size in found.values())


def test_what_write_wrote_is_read(file):
    lab04_findings.write({"/norm/Mul": np.float32(70_000.5), "/head/Gemm": 3}, file)
    assert lab04_findings.read(file) == {"/norm/Mul": 70_000.5, "/head/Gemm": 3.0}


# Hostile files


@pytest.mark.parametrize("data", [b"", b"\x00" * 40, b"not a model", b"\xff" * 5000])
def test_a_file_that_is_no_model_is_one_line(tmp_path, examiner, data):
    (tmp_path / "model.onnx").write_bytes(data)
    RECIPE.save(tmp_path / "recipe.toml")
    examined = LAB.examine(tmp_path, examiner, only="error")
    assert examined.points == 0
    assert "\n" not in said(examined, "error")


def in_an_if(operators: list[onnx.NodeProto]) -> onnx.ModelProto:
    """A model whose nodes stand in both branches of an If."""
    value = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 10])
    tokens = helper.make_tensor_value_info("tokens", TensorProto.FLOAT, ["batch", "rows", 32])
    body = helper.make_graph(operators, "body", [], [value])
    true = helper.make_tensor("true", TensorProto.BOOL, [], [True])
    node = helper.make_node("If", ["true"], ["logits"], name="if", then_branch=body, else_branch=body)
    graph = helper.make_graph([node], "graph", [tokens], [value], [true])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)


def test_control_flow_that_hides_types_is_rejected(submission):
    model = in_an_if([helper.make_node("ReduceMean", ["tokens"], ["logits"], axes=[1], keepdims=0)])
    examined = submission(model)
    assert tiers(examined) == NOTHING
    assert "(If) is control flow" in said(examined, "kernels")
    with pytest.raises(BuildError, match="subgraphs"):
        emulated(model.SerializeToString())


def test_emulation_rejects_what_it_cannot_see():
    with pytest.raises(BuildError, match=r"model\.onnx cannot be emulated"):
        emulated(b"nonsense")
    own = helper.make_node("Own", ["tokens"], ["logits"], name="own", domain="somewhere")
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 10]) for name in ("tokens", "between", "logits")]
    last = helper.make_node("Relu", ["between"], ["logits"], name="relu")
    own.output[0] = "between"
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("somewhere", 1)]
    graph = helper.make_graph([own, last], "graph", values[:1], values[2:])
    with pytest.raises(BuildError, match="the type of 'between'"):
        emulated(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())


def test_emulation_puts_roundings_back(given):
    """The reason for it: ONNX Runtime leaves them out, and the plain cast looks right on a CPU."""
    half, tokens = cast(given, "fp16"), fresh_digits(4, seed=3).tokens()
    model = onnx.load_model_from_string(emulated(half.SerializeToString()))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    assert np.isnan(session.run(None, {"tokens": tokens})[0]).all()


def test_an_attention_that_the_network_does_not_need_stands_in_for_none(given):
    """Four fused ones and a split one: the split one counts, whatever its softmax is made of."""
    split = [node.name for node in given.graph.node if node.name.startswith("/blocks.2/attention/")]
    kept = [*KEEP, *(name for name in split if name.split("/")[-1] in ("MatMul", "Div", "Softmax", "MatMul_1"))]
    yours = Kernels.of(build(cast(given, "fp16", keep=kept), RECIPE, backend="tensorrt_rtx").layers)
    assert (yours.attention, yours.products) == (3, 2)
    reference = lab04_kernels.reference_kernels("tensorrt_rtx")
    assert (reference.attention, reference.products) == (4, 0)
    assert LAB._kernels(reference, reference).tier == "full"
    decoy = LAB._kernels(replace(reference, products=2), reference)
    assert decoy.tier == "partial" and "3 of 4 attentions are one kernel" in decoy.message
    assert LAB._kernels(replace(reference, products=4), reference).tier == "none"


def test_bf16_counts_as_wide(given):
    """It never overflows, so nothing would have to be found."""
    table = build(cast(given, "bf16", keep=[]), RECIPE.model_copy(update={"precision": "bf16"}), backend="tensorrt_rtx").layers
    found = Kernels.of(table)
    assert found.wide > found.total // 2 and found.wide_types == "FP32 or BF16"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("show", "blocks", "foreign"),
    [
        (lab04_submissions.small_share, (3,), 1),
        (lab04_submissions.known_answer, (3,), 1),
        (lab04_submissions.known_factor, (3,), 1),
        (lab04_submissions.passed_through, (3,), 1),
        (lab04_submissions.known_answer, (0, 1, 2, 3), 4),
        (lab04_submissions.passed_through, (0, 1, 2, 3), 4),
    ],
)
def test_an_attention_for_show_does_not_count(submission, show, blocks, foreign):
    """The layer table shows four fused ones and no split one."""
    examined = submission(lab04_submissions.with_an_attention_for_show(show, blocks))
    assert tiers(examined)["kernels"] != "full"
    words = "1 more is fused, but does" if foreign == 1 else f"{foreign} more are fused, but do"
    assert f"{4 - foreign} of 4 attentions are one kernel. {words} not compute an attention" in said(examined, "kernels")


@pytest.mark.slow
def test_a_split_attention_leaves_the_other_three(submission, given):
    """Block 2 mixes rows in FP32, and the fused attention of block 3 reads them: it counts."""
    split = [f"/blocks.2/attention/{name}" for name in ("MatMul", "Div", "Softmax", "MatMul_1")]
    examined = submission(cast(given, "fp16", keep=[*KEEP, *split]))
    assert "3 of 4 attentions are one kernel" in said(examined, "kernels") and "more" not in said(examined, "kernels")[:200]
    assert tiers(examined) == {"error": "full", "kernels": "partial"}


def test_no_request_has_other_answers_than_the_rest():
    """A graph can read a factor for each batch size from a table, and be right for those that are judged in detail."""

    class Engine:
        def __init__(self, rows: int = 0) -> None:
            self.rows = rows

        def infer(self, feeds):
            tokens = feeds["tokens"]
            logits = tokens.reshape(len(tokens), -1)[:, :10] + 1
            return {"logits": -logits if tokens.shape[1] == self.rows else logits}

    found = output_error.error(Engine(), Engine(), Engine(17), Examiner(seed=1))
    assert found.tier == "none" and {rows for _, rows in found.wrong} == {17} and not found.lost
    assert "other answers than the rest" in LAB._error(found).message
    assert output_error.error(Engine(), Engine(), Engine(), Examiner(seed=1)).tier == "full"


# The examiner, and what a GPU adds


def test_a_builder_that_shows_no_attention_is_the_examiners_fault():
    with pytest.raises(ExaminerFault, match="does not show which kernels"):
        lab04_kernels.reference_kernels("onnxruntime")
    with pytest.raises(ExaminerFault, match="cannot be built"):
        lab04_kernels.reference_kernels("nothing")


class OldBench(SharedExaminer):
    """A machine with TensorRT 8.6: another builder has to show the kernels."""

    opset = 17


def test_kernels_are_proved_by_another_builder_where_types_are_permissions(reference, examiner, monkeypatch):
    built = []
    monkeypatch.setattr(Examiner, "build", lambda self, model, recipe: built.append((self.builder, recipe.targets)))
    lab04_kernels.prove(reference / "model.onnx", RECIPE, OldBench(builder="tensorrt@trt8", kept=examiner.kept))
    assert built == [("tensorrt_rtx", ("sm89",))]


@pytest.mark.parametrize(
    ("fp32_ms", "reference_ms", "yours_ms", "tier"),
    [(2.0, 1.0, 1.1, "full"), (1.0, 1.0, 1.1, "full"), (1.0, 1.0, 1.5, "partial"), (1.5, 0.5, 1.0, "full")],
)
def test_on_a_gpu_mixed_has_to_be_fast(fp32_ms, reference_ms, yours_ms, tier):
    """Faster than FP32, or about as fast as the reference where FP16 gains nothing."""
    rng = np.random.default_rng(0)
    latencies = {
        name: ms * rng.normal(1, 0.01, 200)
        for name, ms in (("fp32", fp32_ms), ("reference", reference_ms), ("yours", yours_ms))
    }

    class Measured(lab04_speed.Speed):
        def __init__(self) -> None:
            object.__setattr__(self, "comparison", type("C", (), {"latencies": lambda _: latencies})())

    kernels = LAB.outcome("kernels", "full", "5 of 40 kernels compute in FP32.")
    outcome = LAB._with_speed(kernels, Measured())
    assert outcome.tier == tier, outcome.message
    assert "over the FP32 engine" in outcome.message


def test_speed_is_graded_where_a_gpu_runs_the_engines(monkeypatch):
    assert not Examiner(runner="openvino").on_gpu
    monkeypatch.setattr(session, "device", lambda: "cpu")
    assert not Examiner(runner="onnxruntime").on_gpu
    monkeypatch.setattr(session, "device", lambda: "cuda")
    assert Examiner(runner="onnxruntime").on_gpu
    assert Examiner(runner="tensorrt").on_gpu


@pytest.mark.slow
def test_on_a_gpu_with_tensorrt_8_the_outcome_says_who_did_what(reference, monkeypatch, examiner):
    """Answers and kernels as the types say, speed of the engine that runs there."""
    raced = Examiner(runner="onnxruntime", seed=1, measure_s=1)
    speed = lab04_speed.measured(reference / "model.onnx", RECIPE, raced.runnable(reference / "model.onnx", RECIPE), raced)
    assert set(speed.comparison.latencies()) == {"fp32", "reference", "yours"}
    monkeypatch.setattr(lab04_speed, "graded", lambda examiner: True)
    monkeypatch.setattr(lab04_speed, "measured", lambda *_: speed)
    old = OldBench(builder="tensorrt_rtx", seed=4, kept=examiner.kept)
    examined = LAB.examine(reference, old, only="kernels")
    assert examined.comparison is speed.comparison
    assert "TensorRT 8.6 treats types as permissions" in said(examined, "error")
    assert "of the reference's speed" in said(examined, "kernels")


def test_the_data_has_the_gap_that_the_hint_asks_for(given):
    """The weakest node that breaks, the strongest that does not, and the strongest finite one, as measured."""
    from course_lib.benchmark import sensitivity

    weakest, only_rounds, strongest = "/blocks.1/norm2/Mul", "/head/Gemm", "/norm/Mul"
    nodes = (weakest, only_rounds, strongest, *HARMLESS)
    rows = sensitivity(given, {"tokens": digits("test").tokens()[:16]}, nodes=nodes, progress=False).rows
    error = {row.node: 100 * row.deviation.relative_error for row in rows}
    assert error[only_rounds] < 0.03 < 0.5 < error[weakest] < 1 and 90 < error[strongest] <= 101, error
    assert max(error[node] for node in HARMLESS) < 0.005, error


# Without the reference


@pytest.fixture
def as_learner(tmp_path, examiner, monkeypatch) -> Callable[[onnx.ModelProto], dict[str, Outcome]]:
    """Check a model as learners do, who have placeholders in place of the reference."""
    for module in (lab, lab04_speed):
        monkeypatch.setattr(module, "lab04_reference", withheld)
    monkeypatch.setattr(lab04_kernels, "reference", withheld)

    def check(model: onnx.ModelProto) -> dict[str, Outcome]:
        (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
        RECIPE.save(tmp_path / "recipe.toml")
        found = LAB.examine_as_learner(tmp_path, examiner, only="kernels")
        return {one.task.id: one for one in found.outcomes}

    return check


def test_without_the_reference_a_good_engine_is_open_with_its_numbers(as_learner, reference):
    found = as_learner(onnx.load(reference / "model.onnx"))
    assert {one.mark for one in found.values()} == {"open"} and all("Right so far" in one.message for one in found.values())
    assert "dB SQNR at" in found["error"].message and "5 of 39 kernels compute in FP32" in found["kernels"].message


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        ((), "NaN or infinity in 77 requests"),
        (set(KEEP) - {"/norm/Mul"}, "Full points need at least 50 dB, half of the points at least 30 dB."),
    ],
)
def test_without_the_reference_wrong_logits_have_no_points(as_learner, scaled, kept, said):
    """NaN in every request was shown as open, like a good engine."""
    found = as_learner(cast(scaled, "fp16", keep=kept))
    assert {one.tier for one in found.values()} == {"none"} and said in found["error"].message


def test_without_the_reference_split_attentions_are_counted():
    split = LAB._kernels_so_far(Kernels(total=39, wide=7, attention=3, products=2))
    assert "found 3 of 4" in str(split.criteria[0]) and split.open
    assert LAB._kernels_so_far(Kernels(total=39, wide=31, attention=0, products=8)).tier == "none"
