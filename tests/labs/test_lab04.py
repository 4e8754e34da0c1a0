"""Lab 04 against its reference, other right answers, and mistakes that learners make."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from course_lib import labs
from course_lib.benchmark import sqnr_db
from course_lib.engines import Layer, LayerTable, LayerTensor, build
from course_lib.errors import BuildError, CourseError
from course_lib.labs import Examination, Examiner, withheld
from course_lib.labs.framework.criteria import HALF
from course_lib.labs.framework.onnx_model import transformed
from course_lib.labs.lab04_mixed_precision import checks, given, reference
from course_lib.labs.lab04_mixed_precision.given import LARGEST, Kernels, magnitudes
from course_lib.labs.lab04_mixed_precision.network import loud_encoder
from course_lib.labs.lab04_mixed_precision.reference import KEEP, RECIPE
from course_lib.models import digits, encoder, export_onnx, fresh_digits
from course_lib.precision import cast, emulate
from course_lib.recipe import Profile
from tests.labs.quick import Quick, judged_reference, tiers
from tests.labs.submissions import lab04 as submissions
from tests.labs.submissions.lab04 import GAINED, MISTAKES, SCORES, VANISHING

LAB = labs.find("lab04")
HARMLESS = ("/blocks.3/mlp/Exp", "/blocks.3/mlp/Add", "/blocks.3/mlp/Div")  # they overflow, and the result is right
NARROW = Profile(tokens={"min": (1, 16, 32), "opt": (8, 32, 32), "max": (32, 32, 32)})
FULL = {"error": "full", "kernels": "full"}
EXAMINER = Quick(seed=4)


@pytest.fixture
def submission(tmp_path) -> Callable[..., Examination]:
    """Examine a model for error and kernels."""

    def examine(model: onnx.ModelProto, **changes) -> Examination:
        onnx.save(model, tmp_path / "model.onnx")
        RECIPE.model_copy(update=changes).save(tmp_path / "recipe.toml")
        with LAB.work(tmp_path, EXAMINER) as work:
            return Examination(tuple(LAB._checked(task, work) for task in LAB.tasks[1:]))

    return examine


def shown(examined: Examination, task: str) -> str:
    return next(f"{outcome.message} {outcome.hint}" for outcome in examined.outcomes if outcome.task.id == task)


def logits(model: onnx.ModelProto, tokens: np.ndarray, *, rounded: bool = True) -> np.ndarray:
    """What a model answers in this process, when every tensor is rounded as it says."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    data = (emulate(onnx.shape_inference.infer_shapes(model)) if rounded else model).SerializeToString()
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"]).run(None, {"tokens": tokens})[0]


# ---- the network


def test_the_given_network_reads_digits_and_is_not_the_shipped_one():
    held_out = digits("test")
    tokens = torch.from_numpy(held_out.tokens().copy())
    answers = loud_encoder()(tokens)
    assert (answers.argmax(1).numpy() == held_out.labels).mean() >= 0.97
    assert sqnr_db(answers.numpy(), encoder()(tokens).detach().numpy()) < 30


def test_which_tensors_overflow_and_what_they_do():
    """Stored in FP16 the logits are NaN; with the nodes that alone give NaN kept in FP32 they are finite and wrong."""
    largest = magnitudes(given.network(), fresh_digits(256, seed=1).tokens())
    beyond = {node for node, size in largest.items() if size > LARGEST}
    assert beyond == {*KEEP, *SCORES, *HARMLESS} - {*VANISHING}
    assert max(size for node, size in largest.items() if node not in beyond) < 0.75 * LARGEST
    assert min(largest[node] for node in HARMLESS) > 100 * LARGEST and max(largest[node] for node in VANISHING) < 1e-3
    assert "21 of" in given.magnitudes_figure(largest).get_suptitle()
    tokens = fresh_digits(16, seed=1).tokens()
    assert np.isnan(logits(cast(given.network(), "fp16"), tokens)).all()
    finite = logits(cast(given.network(), "fp16", keep=[*VANISHING, *SCORES, *GAINED]), tokens)
    assert np.isfinite(finite).all() and sqnr_db(logits(given.network(), tokens), finite) < 3
    assert sqnr_db(logits(given.network(), tokens), logits(submissions.scaled(), tokens)) > 110


def test_what_a_learner_reads_does_not_say_where_the_network_breaks():
    text = Path(str(loud_encoder.__code__.co_filename)).read_text().lower()
    assert [word for word in ("2.0**", "quiet", "sharp", "overflow", "block =", "[2]", "32768") if word in text] == []


# ---- whole submissions


def test_the_judge_gives_the_reference_full_marks(tmp_path):
    verdict = judged_reference(LAB, tmp_path)
    assert verdict.figures["fp16_share"] > 0.8 and verdict.figures["attention_fused"] == 4
    assert 62 < verdict.figures["sqnr_db"] < 70, "full points need 60 dB"


def test_the_numbers_that_learners_get_are_the_references(tmp_path, monkeypatch):
    with LAB.work(tmp_path, EXAMINER) as work:
        recorded = work.wanted
    monkeypatch.setattr(checks.MixedWork, "expected", None)
    with LAB.work(tmp_path, EXAMINER) as work:
        assert work.wanted == recorded == USUAL


@pytest.mark.slow
def test_divided_queries_and_a_gain_folded_into_the_weights(submission):
    examined = submission(submissions.with_layer_norms())
    assert tiers(examined) == FULL, examined.outcomes


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake(name, submission):
    model, *expected = MISTAKES[name]
    examined = submission(model())
    for task, (tier, words) in zip(("error", "kernels"), expected, strict=True):
        assert tiers(examined)[task] == tier and words in shown(examined, task), examined.outcomes


def test_wrong_work_never_reads_like_right_work_without_the_reference(submission, monkeypatch):
    """In the learner's bundle, NaN in every request was shown as open, like a good engine."""
    monkeypatch.setattr(checks, "reference", withheld)
    examined = submission(cast(submissions.scaled(), "fp16", keep=KEEP))
    assert tiers(examined) == FULL
    monkeypatch.setattr(checks.MixedWork, "expected", None)  # a builder without recorded numbers
    right, wrong = np.eye(10), np.full((10, 10), np.nan)
    assert [kernels_of(USUAL, right).mark, kernels_of(USUAL, wrong).tier] == ["open", "none"]
    assert kernels_of(Kernels(total=39, wide=31, attention=0), right).tier == "none"


USUAL = Kernels(total=39, wide=5, attention=4)


def kernels_of(kernels: Kernels, answers: np.ndarray):
    """The outcome of the task `kernels` for a submission of which the kernels and the answers are known."""
    with LAB.work(Path(), Examiner(builder="none", runner="onnxruntime")) as work:
        work.results |= {"kernels": kernels, "answers": list(checks.compared({"": [np.eye(10)]}, {"": [answers]}))}
        return LAB._checked(LAB.task("kernels"), work)


@pytest.mark.parametrize(
    ("changes", "message", "hint"),
    [
        ({"precision": "fp32"}, 'recipe.toml says precision = "fp32"', "statement about the graph"),
        ({"profiles": ()}, "recipe.toml has 0 profiles", "`service`"),
        ({"profiles": 2 * RECIPE.profiles}, "recipe.toml has 2 profiles", "`service`"),
        ({"profiles": (NARROW,)}, "does not accept 1 x 48 rows", "`service`"),
    ],
)
def test_a_recipe_that_does_not_fit(submission, changes, message, hint):
    examined = submission(given.network(), **changes)
    assert set(tiers(examined).values()) == {"none"}
    assert message in shown(examined, "error") and hint in shown(examined, "kernels")


# ---- answers


def kept(*left_out: str) -> onnx.ModelProto:
    """The scores scaled, and nodes in FP32 as in the reference but for those whose names have one of these parts."""
    return cast(submissions.scaled(), "fp16", keep=[node for node in KEEP if not any(part in node for part in left_out)])


@pytest.mark.parametrize(
    ("model", "tier", "words"),
    [
        (lambda: kept("/blocks.1/norm"), "partial", "still overflows"),
        (lambda: kept("/blocks.2"), "none", "zero, not NaN"),
        (lambda: kept("down"), "none", "reader kept too"),
        (lambda: kept(*VANISHING), "none", "first that is not finite"),
        (lambda: cast(submissions.scaled(), "fp16", keep=[*KEEP, *HARMLESS]), "full", ""),
        (lambda: cast(submissions.scaled(), "bf16"), "partial", "rounds more coarsely"),
        (lambda: cast(export_onnx(encoder(), opset=given.OPSET), "fp16"), "none", "Finite logits can be wrong"),
    ],
    ids=["a place", "squares", "a reader", "small numbers", "harmless nodes kept", "BF16", "the shipped encoder"],
)
def test_answers(model, tier, words):
    """Of nodes to keep that are missing, of BF16, and of another network."""
    tokens = fresh_digits(32, seed=4).tokens(16)
    want, have = ({"16 rows": [logits(one, tokens)]} for one in (given.network(), model()))
    outcome = LAB.decided("error", list(checks.compared(want, have)))
    assert outcome.tier == tier and words in outcome.hint, outcome


def test_requests_have_every_size_of_the_service(tmp_path):
    with LAB.work(tmp_path, EXAMINER) as work:
        requests = work.requests()
    assert [tokens.shape for tokens in requests["48 rows"]] == [(n, 48, 32) for n in (1, 3, 8, 32)]
    assert len(requests["other sizes"]) == 8 and {tokens.shape[2] for tokens in requests["other sizes"]} == {32}


# ---- kernels


def test_tiers_of_kernels():
    def tier(**changes) -> str:
        yours = Kernels(**{**vars(USUAL), **changes})
        return LAB.decided("kernels", list(checks.counted(yours, USUAL))).tier

    assert [tier(wide=n) for n in (3, 7, 8, 15, 16)] == ["full", "full", "partial", "partial", "none"]
    assert [tier(attention=n) for n in (3, 2)] == ["partial", "none"]


def test_bf16_counts_as_wide():
    """It never overflows, so nothing would have to be found."""
    recipe = RECIPE.model_copy(update={"precision": "bf16"})
    found = Kernels.of(build(cast(given.network(), "bf16", keep=[]), recipe, backend="tensorrt_rtx").layers)
    assert found.wide > found.total // 2 and found.wide_types == "FP32 or BF16"


def test_a_kernel_that_calls_itself_attention_is_none():
    """Kernels of products carry their node's name, which a submission chooses."""
    half, wide = (LayerTensor("x", (4,), dtype) for dtype in ("Half", "Float"))
    layers = (
        Layer("_gemm_mha_v2_myl0_1", "kgen", (half,)),
        Layer("_gemm_mha_v2_myl0_2", "gemm", (half,)),
        Layer("_gemm_mha_v2_myl0_3", "kgen", (wide,)),
        Layer("__myl_Cast", "signal", (wide,)),
    )
    assert Kernels.of(LayerTable(layers)) == Kernels(total=3, wide=1, attention=1)
    assert Kernels.of(LayerTable()).share == 0


def test_kernels_are_proved_by_another_builder_where_types_are_permissions(tmp_path, monkeypatch):
    built = []
    monkeypatch.setattr(Examiner, "build", lambda self, model, recipe: built.append((self.builder, recipe.targets)))
    monkeypatch.setattr(Examiner, "opset", 17)
    monkeypatch.setenv("COURSE_ENVIRONMENTS", "trt8=python")
    given.prove(tmp_path / "model.onnx", RECIPE, Examiner(builder="tensorrt@trt8"))
    assert built == [("tensorrt_rtx", ("sm89",))]


@pytest.mark.parametrize(
    ("fp32_ms", "reference_ms", "met"),
    [(2.0, 1.0, True), (1.0, 1.0, True), (1.0, 0.7, False), (1.5, 0.5, True), (1.0, None, None)],
)
def test_on_a_gpu_mixed_has_to_be_fast(fp32_ms, reference_ms, met):
    """Faster than FP32, or about as fast as the reference where FP16 gains nothing. Without the reference, only the former is known."""
    rng = np.random.default_rng(0)
    given_ms = {"fp32": fp32_ms, "reference": reference_ms, "yours": 1.1}
    latencies = {name: ms * rng.normal(1, 0.01, 200) for name, ms in given_ms.items() if ms}
    criterion = checks.fast(latencies)
    assert criterion.met is met and (criterion.code == "no_reference") == (met is None)


def test_emulation_puts_roundings_back():
    """The reason for it: ONNX Runtime leaves them out, and the plain cast looks right on a CPU."""
    half, tokens = cast(given.network(), "fp16"), fresh_digits(4, seed=3).tokens()
    model = onnx.load_model_from_string(given.emulated(half.SerializeToString()))
    assert np.isnan(logits(model, tokens, rounded=False)).all()
    with pytest.raises(BuildError, match=r"model\.onnx cannot be emulated"):
        transformed(given.emulated, b"nonsense", "model.onnx cannot be emulated")


# ---- findings


def loud(known, largest) -> dict[str, float]:
    return {node: size for node, size in largest.items() if size > LARGEST}


def without(known, *ends: str) -> dict[str, float]:
    return {node: size for node, size in known.items() if not node.endswith(ends)}


READERS = ("ReduceMean_1", "down/MatMul")
FINDINGS = {
    "readers are enough": (lambda known, _: {n: known[n] for n in known if n.endswith((*READERS, "n/MatMul"))}, "full", ()),
    "a limit on the magnitude alone": (loud, "partial", (checks._BY_MAGNITUDE, "3 of them overflow", "too small for FP16")),
    "harmless nodes too": (lambda known, largest: {**loud(known, largest), **known}, "partial", (checks._HARMLESS,)),
    "nothing small": (lambda known, _: without(known, *VANISHING), "partial", (checks._VANISHED,)),
    "only what gives NaN": (
        lambda known, _: {n: size for n, size in without(known, *READERS).items() if "norm" not in n},
        "none",
        ("finite, wrong",),
    ),
    "innocent nodes": (
        lambda known, _: {**without(known, *READERS), "/norm/Add": 40_000.0, "/blocks.0/norm1/Mul": 26_000.0},
        "partial",
        ("alone is 2, ", "one node at a time"),
    ),
    "a magnitude": (lambda known, _: {**known, "/norm/Mul": 4e4}, "partial", ("is 1, such as /norm/Mul", checks._MAGNITUDE)),
    "magnitudes": (
        lambda known, _: {n: 9 * size for n, size in known.items()},
        "none",
        ("met: places that break", checks._MAGNITUDE),
    ),
    "the 24 loudest": (lambda _, largest: {n: largest[n] for n in sorted(largest, key=largest.get)[-24:]}, "none", ()),
}


@pytest.fixture(scope="module")
def largest() -> dict[str, float]:
    return magnitudes(given.network(), digits("test").tokens()[:64])


@pytest.mark.parametrize("name", FINDINGS)
def test_findings(name, largest):
    make, tier, words = FINDINGS[name]
    findings = make(reference.findings(), largest)
    outcome = LAB.decided("find", list(checks.judged(findings, fresh_digits(24, seed=6).tokens())))
    shown = f"{outcome.message} {outcome.hint}"
    assert outcome.tier == tier and all(word in shown for word in words), outcome


def test_a_node_that_overflows_for_few_digits_is_right_on_others():
    outcome = LAB.decided("find", list(checks.judged(reference.findings(), fresh_digits(24, seed=24).tokens())))
    assert outcome.tier == "full", outcome


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has to be one table [largest]"),
        ("[largest]\n[other]\n", "has to be one table [largest]"),
        ("[largest", "is not TOML"),
        ("#" * 70_000, "is longer than"),
        ('[largest]\n"/norm/Mul" = inf', "a positive number for '/norm/Mul', found inf"),
        ('[largest]\n"/norm/Mul" = true', "a positive number"),
        ('[largest]\n"/nothing" = 70000', "'/nothing', which is not a node of the given network"),
        ("[largest]\n" + "\n".join(f'"/{n}" = 1' for n in range(65)), "at most 64 are read"),
    ],
)
def test_findings_that_cannot_be_read_are_one_line(tmp_path, text, message):
    (tmp_path / given.FILE).write_text(text)
    (outcome,) = LAB.examine(tmp_path, EXAMINER, only="find").outcomes
    assert outcome.tier == "none" and message in outcome.message and "\n" not in outcome.message


def test_what_write_wrote_is_read(tmp_path):
    given.write({"/norm/Mul": np.float32(70_000.5), "/head/Gemm": 3}, tmp_path / given.FILE)
    assert given.read(tmp_path / given.FILE) == {"/norm/Mul": 70_000.5, "/head/Gemm": 3.0}
    with pytest.raises(CourseError, match="is missing"):
        given.read(tmp_path / "nowhere")


def test_the_data_has_the_gap_that_the_hint_asks_for():
    """The weakest node that breaks, the strongest that does not, and the strongest finite one, as measured."""
    from course_lib.benchmark import sensitivity

    weakest, only_rounds, strongest = "/blocks.1/norm2/Mul", "/head/Gemm", "/norm/Mul"
    nodes = (weakest, only_rounds, strongest, *HARMLESS)
    rows = sensitivity(given.network(), {"tokens": digits("test").tokens()[:16]}, nodes=nodes, progress=False).rows
    error = {row.node: 100 * row.deviation.relative_error for row in rows}
    assert error[only_rounds] < 0.03 < 0.5 < error[weakest] < 1 and 90 < error[strongest] <= 101, error
    assert max(error[node] for node in HARMLESS) < 0.005, error
    assert checks.SQNR_DB[HALF] < 48 < 60, "BF16 has half of the points"
