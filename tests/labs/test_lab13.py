"""Lab 13 against its reference, mistakes that learners make, and cheats for its metrics."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import onnxruntime
import pytest

from course_lib import labs
from course_lib.errors import BuildError, EngineError, ExaminerFault
from course_lib.grading.isolation import sandbox
from course_lib.grading.judge.judging import judge
from course_lib.grading.reports import report
from course_lib.labs import Examiner, Outcome
from course_lib.labs.framework import isolation
from course_lib.labs.framework.submission_files import MISSING_FILE
from course_lib.labs.framework.task import UNUSUAL
from course_lib.labs.lab13_generation import calls, figures, graph_form, half, kernels, network
from course_lib.labs.lab13_generation import lab as lab13
from course_lib.labs.lab13_generation import reference as lab13_reference
from course_lib.labs.lab13_generation.calls import LENGTH, SERVICE, Call, Reply
from course_lib.labs.lab13_generation.graph_form import GraphForm
from course_lib.labs.lab13_generation.judge import answers, faults, loop, speed, truth
from course_lib.labs.lab13_generation.judge.decoders import HostedDecoder
from course_lib.labs.lab13_generation.lab import Generation
from course_lib.labs.lab13_generation.sandboxed import decoder_host
from course_lib.models import decoder, export_cached
from course_lib.recipe import Profile, Recipe
from tests.labs.submissions import hostile
from tests.labs.submissions import lab13 as made
from tests.labs.submissions.lab13 import Parts
from tests.labs.untouched import leave_untouched

LAB = labs.find("lab13")
assert isinstance(LAB, Generation)
SOLVED = {"answers": "full", "loop": "full", "requests": "full", "fused": "full", "speed": "full"}


class InProcess(HostedDecoder):
    """A decoder without a process."""

    def __init__(self, model: bytes) -> None:
        super().__init__(None, False)  # type: ignore[arg-type]
        object.__setattr__(self, "decoder", decoder_host.opened(model))

    @classmethod
    def start(cls, model, examiner, *, ours=False):
        try:
            return nullcontext(cls(model))
        except Exception as error:
            raise EngineError(str(error).splitlines()[0]) from None

    def _ask(self, request, arrays=None):
        return decoder_host._answer(self.decoder, request, arrays)  # type: ignore[attr-defined]


def answered(model: onnx.ModelProto, seed: int = 3) -> Outcome:
    """The outcome of the task `answers`."""
    return LAB._answers(answers.asked_answers(InProcess(made.fixed(model)), np.random.default_rng(seed)))


def requested(model: onnx.ModelProto, seed: int = 3) -> Outcome:
    """The outcome of the task `requests`."""
    return LAB._requests(InProcess(made.fixed(model)), np.random.default_rng(seed))


@cache
def good() -> onnx.ModelProto:
    return onnx.load_model_from_string(lab13_reference.serialized())


@pytest.fixture(scope="module")
def reference(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("reference")
    LAB.write_reference(folder)
    return folder


@pytest.fixture
def in_process(monkeypatch) -> None:
    """Everything but the compiler in this process."""
    monkeypatch.setattr(lab13, "HostedDecoder", InProcess)
    monkeypatch.setattr(isolation, "transformed", lambda module, model, **_: graph_form._examined(model))
    for module in (half, lab13):
        monkeypatch.setattr(module, "halved", lambda model, **_: half._halved(model))
    monkeypatch.setattr(kernels, "halved", lambda model, **_: half._halved(model))


Fuse = Callable[..., Outcome]


@pytest.fixture
def fused(tmp_path, in_process) -> Fuse:
    """The outcome of the task `fused`."""

    def outcome(model: onnx.ModelProto, recipe: Recipe = lab13_reference.RECIPE) -> Outcome:
        (tmp_path / "decoder.onnx").write_bytes(made.fixed(model))
        recipe.save(tmp_path / "recipe.toml")
        graph = lab13.Graph(tmp_path / "decoder.onnx", graph_form.examined((tmp_path / "decoder.onnx").read_bytes()))
        return LAB._fused(tmp_path, graph, Examiner(seed=5))

    return outcome


# Right answers


def test_the_judge_gives_the_reference_full_marks(reference):
    """In the sandbox, where there is one. The race is short, so that a busy machine may leave the speed open."""
    verdict = judge(LAB, reference, trusted=bool(sandbox.problem()), examiner=Examiner(measure_s=2))
    assert not verdict.fault, verdict.fault
    found = {outcome.task.id: outcome.tier for outcome in verdict.outcomes}
    assert found["speed"] in ("full", "inconclusive"), verdict.outcomes[-1].message
    assert found | {"speed": "full"} == SOLVED, [outcome.message for outcome in verdict.outcomes]
    assert "over recomputing" in report.page(LAB, verdict, "ada")


def test_other_right_answers():
    """The parts of the tests' own attention, torch's way of writing, and repeated heads: another graph, the same function."""
    rng = np.random.default_rng(0)
    for parts in (Parts(), Parts(write=made.scatter_nd), Parts(attend=made.each_head_its_copy()), Parts(attend=made.in_groups)):
        model = parts.graph()
        found = answers.asked_answers(InProcess(made.fixed(model)), rng)
        assert found.right, found
        assert requested(model).tier == "full"


def test_the_untouched_release_has_none(tmp_path):
    leave_untouched(LAB.name, tmp_path)
    examined = LAB.examine(tmp_path, Examiner())
    assert examined.points == 0
    assert all(outcome.hint for outcome in examined.outcomes)


def test_nothing_was_handed_in(tmp_path):
    examined = LAB.examine(tmp_path, Examiner())
    assert examined.points == 0 and [outcome.task.id for outcome in examined.outcomes] == list(SOLVED)
    assert {outcome.code for outcome in examined.outcomes} == {MISSING_FILE}
    assert "decoder.onnx is missing" in examined.outcomes[0].message


# Mistakes in the attention, each with its own words

MISTAKES = {
    "mask_one_more": (Parts(mask=made.one_more), "each token also sees the slot after its own"),
    "mask_one_less": (Parts(mask=made.one_less), "no token sees its own slot"),
    "no_mask": (Parts(mask=made.nothing_hidden), "every token attends to all slots"),
    "mask_by_length_only": (Parts(mask=made.by_length), "is not causal"),
    "rotary_from_zero": (Parts(angles=made.steps), "rotary positions begin at 0 in each call"),
    "keys_not_rotated": (Parts(rotate_keys=False), "rotates the queries only"),
    "written_at_zero": (Parts(write=made.at_zero), "at slot 0, over those of the first tokens"),
    "written_one_late": (Parts(write=made.one_late), "one slot too late"),
    "heads_interleaved": (Parts(attend=made.each_head_its_copy(interleaved=True)), "query head h reads head h % 2"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_in_the_attention_is_named(name):
    parts, words = MISTAKES[name]
    outcome = answered(parts.graph())
    assert outcome.points < 3 and words in outcome.message, outcome.message
    assert outcome.hint == faults.FAULTS[name].hint


def test_decode_that_is_wrong_after_a_right_prompt_has_half():
    outcome = answered(Parts(angles=made.steps).graph())
    assert (outcome.tier, outcome.points) == ("partial", 1.5)
    assert "The first wrong one is token" in outcome.message


def test_every_known_mistake_differs_from_the_others_and_from_the_truth():
    asked = truth.request(truth.secret_prompt(np.random.default_rng(7), 9), 6)
    assert truth.error(asked.logits, faults.faulty_logits("", asked.fed, asked.sizes)) < 1e-5
    for name in faults.FAULTS:
        found = faults.recognized(asked.fed, asked.sizes, faults.faulty_logits(name, asked.fed, asked.sizes))
        assert found is faults.FAULTS[name]
    assert faults.recognized(asked.fed, asked.sizes, np.roll(asked.logits, 1, axis=1)) is None


def test_a_tie_is_not_a_mistake():
    want = np.zeros((2, 256), np.float32)
    want[:, 5] = 3.0
    want[0, 9] = 3.0 - 5e-4
    have = want.copy()
    have[:, 9] = 3.001
    assert truth.wrong_tokens(want, have).tolist() == [1]


# Mistakes between requests


def test_mistake_stale_entries_are_attended():
    """Right on a cache of zeros: slots with zeros are hidden, and a used cache has none."""
    model = Parts(mask=made.empty_slots_hidden).graph()
    assert answered(model).tier == "full"
    outcome = requested(model)
    assert outcome.tier == "none" and "a second request in the same buffers is" in outcome.message
    assert "Only the mask keeps old entries out" in outcome.hint


def test_mistake_a_mask_that_is_too_weak():
    model = Parts(mask=made.weak).graph()
    assert answered(model).tier == "full"
    outcome = requested(model)
    assert outcome.tier == "partial" and "a request over stale entries is" in outcome.message


# Mistakes in the form of the graph


def rejected(model: onnx.ModelProto) -> str:
    with pytest.raises(BuildError) as caught:
        graph_form._examined(model.SerializeToString())
    return str(caught.value)


def test_mistake_a_cache_that_is_concatenated():
    said = rejected(export_cached(decoder(), "concat", length=LENGTH, last_only=True))
    assert (
        "past_key_0 has the shape 1 x 2 x N x 32, expected 1 x 2 x 256 x 32. A cache that grows is copied in each step" in said
    )


def test_mistakes_in_inputs_and_outputs():
    assert "logits has the shape 1 x N x 256" in rejected(export_cached(decoder(), length=LENGTH))
    assert "past_key_0 is float16, expected float32" in rejected(
        export_cached(decoder(), dtype="fp16", length=LENGTH, last_only=True)
    )
    assert "no input 'position'" in rejected(onnx.load_model_from_string(network.recomputing()))
    more = onnx.load_model_from_string(lab13_reference.serialized())
    more.graph.output.append(onnx.helper.make_tensor_value_info("/embed/Gather_output_0", 1, [1, None, 192]))
    assert "the output '/embed/Gather_output_0', which is not in the contract" in rejected(more)


def test_mistake_a_size_in_the_computation():
    with pytest.raises(BuildError, match=r"reads a size. Sizes may shape tensors"):
        made.fixed(export_cached(decoder(), length=LENGTH, last_only=True))


def test_writers_of_the_caches():
    def form(write) -> GraphForm:
        found = json.loads(graph_form._examined(made.fixed(Parts(write=write).graph())))
        return GraphForm(found["writers"], tuple(found["products"]))

    assert form(made.into_cache).in_place == 8
    assert form(made.scatter_nd).others == ["Transpose"]
    assert form(made.one_late).others == ["TensorScatter at another place than `position`"]
    assert (
        form(made.hides_state).others == ["TensorScatter into another tensor than past_key_0"]
        or form(made.hides_state).in_place == 0
    )


def test_a_file_that_is_not_a_graph(tmp_path):
    (tmp_path / "decoder.onnx").write_bytes(b"a text")
    examined = LAB.examine(tmp_path, Examiner(), only="answers")
    assert examined.points == 0 and "not an ONNX model" in examined.outcomes[0].message


# Mistakes that only the compiler shows


def test_the_reference_is_fused(fused):
    outcome = fused(good())
    assert outcome.tier == "full", outcome.message


def test_mistake_a_mask_beyond_half_precision(fused):
    outcome = fused(Parts(mask=made.beyond_half).graph())
    assert outcome.tier == "none" and "has the size 1e+09, and FP16 ends at 65504" in outcome.message


def test_mistake_a_cache_between_transposes(fused):
    outcome = fused(Parts(write=made.scatter_nd).graph())
    assert outcome.tier == "partial" and "Other caches are written by Transpose" in outcome.message
    assert "caches written in place is 0 of 8" in outcome.message and "operator set 24" in outcome.hint


def test_mistake_a_copy_for_each_query_head(fused):
    outcome = fused(Parts(attend=made.each_head_its_copy()).graph())
    assert outcome.tier == "partial" and "a single token's kernels write is 16" in outcome.message
    assert "repeated for each query head" in outcome.hint


def test_mistake_an_attention_that_is_split(fused):
    outcome = fused(Parts(attend=made.in_groups).graph())
    assert outcome.tier == "none" and "attentions in one kernel, for prompts is 0 of 4" in outcome.message


def test_cheat_decoys_beside_split_attentions(fused):
    outcome = fused(Parts(attend=made.decoys).graph())
    assert outcome.tier == "none" and "0 of 4" in outcome.message, outcome.message


@pytest.mark.slow
@pytest.mark.parametrize(
    "attend", [made.passes_through, made.passes_before, made.mixes_in_the_mask], ids=lambda one: one.__name__
)
def test_cheat_a_fused_attention_that_hands_on(fused, attend):
    """Every path passes through a fused attention, and the products are computed outside of it."""
    outcome = fused(Parts(attend=attend).graph())
    assert outcome.tier == "none" and "0 of 4" in outcome.message, outcome.message


def test_caches_that_are_written_by_selection(fused):
    outcome = fused(Parts(write=made.by_selection).graph())
    assert outcome.tier == "partial" and "Other caches are written by Add" in outcome.message, outcome.message


PROMPTS, SINGLE = lab13_reference.RECIPE.profiles
SHORT = Profile(tokens={"min": (1, 1), "opt": (1, 64), "max": (1, 128)})


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        (Recipe(precision="fp16", profiles=[PROMPTS]), "1 profiles, expected two"),
        (Recipe(precision="fp16", profiles=[PROMPTS, PROMPTS]), "no profile is for a single token alone"),
        (Recipe(precision="fp16", profiles=[SINGLE, SINGLE]), "both profiles are for a single token"),
        (Recipe(precision="fp16", profiles=[SHORT, SINGLE]), "must accept 2 to 232 tokens"),
        (Recipe(profiles=[PROMPTS, SINGLE]), 'precision = "fp32"'),
    ],
)
def test_mistakes_in_the_recipe(recipe, words):
    with pytest.raises(BuildError, match=words):
        kernels.profiles(recipe)


def test_profiles_may_come_in_any_order():
    prompts, single = kernels.profiles(Recipe(precision="fp16", profiles=[SINGLE, PROMPTS]))
    assert prompts.profiles == (PROMPTS,) and single.profiles == (SINGLE,)


# The host's loop


@cache
def replies() -> tuple[Reply, ...]:
    return tuple(lab13_reference.replies())


def mistaken(number: int, change: Callable[[Reply], Reply]) -> loop.Mistake:
    found = list(replies())
    found[number] = change(found[number])
    (mistake,) = loop.judged(found)
    return mistake


def moved(reply: Reply, by: int, begin: int = 0) -> Reply:
    calls = [replace(call, position=call.position + by * (n >= begin)) for n, call in enumerate(reply.calls)]
    return replace(reply, calls=tuple(calls))


def one_by_one(reply: Reply) -> Reply:
    first = reply.calls[0].tokens
    return replace(reply, calls=(*(Call(n, (token,)) for n, token in enumerate(first)), *reply.calls[1:]))


def fed_to_the_end(reply: Reply) -> Reply:
    last = reply.calls[-1]
    return replace(reply, calls=(*reply.calls, Call(last.position + len(last.tokens), (reply.answer[-1],))))


LOOPS = {
    "position_goes_on": (0, lambda reply: moved(reply, 30), "first call is at position 30, expected 0", False),
    "prompt_in_steps": (0, one_by_one, "first call has 1 tokens, expected the whole prompt of 43", True),
    "position_of_the_prompt_forgotten": (0, lambda reply: moved(reply, -42, 1), "call 2 is at position 1, expected 43", False),
    "last_byte_fed": (0, fed_to_the_end, "25 calls for 24 bytes, expected 24", True),
    "stops_early": (2, lambda reply: replace(reply, answer=reply.answer[:-1]), "ends after 14 bytes without a newline", False),
    "goes_on_after_a_newline": (1, lambda one: replace(one, answer=one.answer + b"more"), "goes on after the newline at byte 18", False),
    "another_byte": (0, lambda reply: replace(reply, answer=b"X" + reply.answer[1:]), "byte 1 of the answer is not the most likely", False),
    "beyond_the_count": (3, lambda reply: replace(reply, answer=reply.answer * 2), "has 2 bytes, at most 1", False),
}  # fmt: skip


@pytest.mark.parametrize("name", LOOPS)
def test_mistake_in_the_loop_is_named(name):
    number, change, words, wasteful = LOOPS[name]
    mistake = mistaken(number, change)
    assert words in mistake.message and mistake.wasteful == wasteful
    assert f"Request {number + 1}: " in mistake.message and mistake.hint


def test_calls_that_waste_time_have_half(tmp_path):
    calls.write([one_by_one(replies()[0]), *replies()[1:]], tmp_path / calls.FILE)
    outcome = LAB.examine(tmp_path, Examiner(), only="loop").outcomes[0]
    assert (outcome.tier, outcome.points) == ("partial", 0.5)


def test_a_recorded_host_is_read_as_it_was_written(tmp_path, reference):
    recorder = calls.Recorder(reference / "decoder.onnx")
    for asked, reply in zip(SERVICE, replies(), strict=True):
        for call in reply.calls:
            token = int(recorder.step(call.tokens, call.position).argmax())
        assert token == reply.answer[-1], asked
        recorder.answer(reply.answer)
    recorder.save(tmp_path / calls.FILE)
    assert tuple(calls.read(tmp_path / calls.FILE)) == replies()


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"requests": [1]}', '{"requests": [{"calls": [{"position": -1, "tokens": []}], "answer": []}]}',
     '{"requests": [{"calls": [], "answer": [256]}]}', '{"requests": [{"calls": [], "answer": "' + "9" * 40 + '"}]}'],
)  # fmt: skip
def test_a_file_of_calls_that_is_something_else(tmp_path, text):
    (tmp_path / calls.FILE).write_text(text)
    try:
        assert loop.judged(calls.read(tmp_path / calls.FILE))
    except EngineError as error:
        assert "calls.json is not" in str(error)


def test_a_wrong_decoder_is_not_examined_further(tmp_path, in_process, reference):
    (tmp_path / "decoder.onnx").write_bytes(Parts(mask=made.one_less).graph().SerializeToString())
    one = LAB.examine(tmp_path, Examiner(), only="answers")
    assert [outcome.task.id for outcome in one.outcomes] == ["answers"] and one.points == 0
    found = LAB.examine(tmp_path, Examiner()).outcomes
    assert [outcome.task.id for outcome in found] == list(SOLVED)
    assert all("not examined further" in outcome.message for outcome in found[2:])


# Cheats


def test_cheat_a_table_of_answers():
    outcome = answered(made.table_of_answers())
    assert outcome.tier == "none" and "tokens after a prompt equal" in outcome.message


@pytest.mark.slow
@pytest.mark.parametrize(
    ("write", "number", "tier"),
    [
        (made.writes_numbers, made.number_of_one, "none"),
        (made.writes_numbers, made.number_of_all, "none"),
        (made.into_cache, made.number_of_a_value, "partial"),
    ],
)
def test_cheat_a_cache_of_tokens(write, number, tier):
    """Every token is right, and computed again from the numbers of all tokens before it."""
    model = made.recomputes(write, number)
    found = answers.asked_answers(InProcess(made.fixed(model)), np.random.default_rng(3))
    assert not found.wrong and found.error < 1e-3 and not found.right
    outcome = LAB._answers(found)
    words = "entries of two prompts were exchanged" if tier == "partial" else "share of the keys and values that a cache lacks"
    assert outcome.tier == tier and words in outcome.message, outcome.message
    assert "in the cache" in outcome.hint


@pytest.mark.parametrize("tokens", [16, 150])
def test_cheat_a_prompt_that_is_read_in_part(tokens):
    """The first tokens of a long prompt do not count; with a window of 150 most tokens are still right."""
    outcome = answered(Parts(mask=made.window(tokens)).graph())
    assert outcome.tier == "none" and "error of the logits after a prompt" in outcome.message


def test_cheat_other_answers_at_late_positions():
    with pytest.raises(BuildError, match="control flow"):
        made.fixed(made.branch_on_position())


def test_cheat_state_that_is_kept_between_requests():
    model = Parts(write=made.hides_state).graph()
    outcome = requested(model)
    assert outcome.tier == "none" and "slots that a call changes is slot 255 of key_0" in outcome.message, outcome.message
    assert "Which node of your graph changes others" in outcome.hint


@pytest.mark.parametrize("when", [made.at_the_first_slot, made.at_the_last_slot, made.for_a_long_prompt])
def test_cheat_a_call_that_clears_other_slots(when):
    outcome = requested(Parts(write=made.clears_others(when)).graph())
    assert outcome.tier == "none" and "slots that a call changes is slot" in outcome.message, outcome.message


@pytest.mark.parametrize(
    "change",
    [hostile.weights_in_a_file_elsewhere, hostile.weights_larger_than_any_memory, hostile.a_name_of_two_lines],
    ids=lambda change: change.__name__,
)
def test_hostile_graphs_are_turned_away_in_one_line(tmp_path, change):
    (tmp_path / "decoder.onnx").write_bytes(hostile.changed(good(), change).SerializeToString())
    examined = LAB.examine(tmp_path, Examiner(measure_s=1), only="answers")
    for outcome in examined.outcomes:
        assert outcome.message.isprintable() and (outcome.points == 0 or change is hostile.a_name_of_two_lines)


def test_an_answer_that_is_not_finite_says_why():
    class Broken(InProcess):
        def _ask(self, request, arrays=None):
            found = super()._ask(request, arrays)
            return {name: array * np.nan for name, array in found.items()}

    with pytest.raises(EngineError, match="NaN or infinite"):
        Broken(lab13_reference.serialized()).feed(np.array([1]), [1])


# The race


def latencies(**changed: float) -> dict[str, np.ndarray]:
    """Times of 60 rounds with little noise."""
    rng = np.random.default_rng(1)
    median = {
        "recomputing": 20.0,
        "reference, early": 0.5,
        "reference": 0.5,
        "yours, early": 0.5,
        "yours": 0.5,
    }
    median |= {speed._named("yours", when): ms for when, ms in changed.items()}
    return {name: ms * rng.normal(1, 0.02, 60) for name, ms in median.items()}


@pytest.mark.parametrize(
    ("changed", "tier", "words"),
    [
        ({}, "full", ""),
        ({"late": 0.85}, "partial", "growth"),
        ({"early": 0.9, "late": 0.9}, "partial", "tokens per second over the reference"),
        ({"early": 0.5, "late": 15.0}, "none", "tokens per second over recomputing"),
        ({"early": 0.5, "late": 0.625}, "inconclusive", ""),
        ({"early": 0.1, "late": 0.1}, "inconclusive", ""),
    ],
)
def test_a_race_has_three_outcomes(changed: Mapping[str, float], tier, words):
    rounds = latencies(**changed)
    full, half_ = speed.criteria(rounds)
    outcome = LAB.judged("speed", full, half_, "hint")
    assert outcome.tier == tier and words in outcome.message, outcome.message
    assert LAB.speed_tier(rounds) == tier


def test_far_faster_than_the_reference_is_for_an_instructor(monkeypatch):
    rounds = latencies(early=0.1, late=0.1)

    monkeypatch.setattr(lab13, "HostedDecoder", InProcess)
    monkeypatch.setattr(speed, "measured", lambda *_: SimpleNamespace(latencies=lambda: rounds))
    outcome = LAB._speed(SimpleNamespace(data=lab13_reference.serialized()), Examiner(), [])
    assert (outcome.tier, outcome.points, outcome.code) == ("inconclusive", 0.0, UNUSUAL)
    assert "An instructor will look at it" in outcome.message


def test_a_decoder_that_fails_in_the_race_keeps_what_it_earned(tmp_path, monkeypatch, in_process):
    def fails(*_):
        raise EngineError("timed tokens at late positions: 3 of 16 tokens wrong")

    monkeypatch.setattr(speed, "measured", fails)
    monkeypatch.setattr(LAB, "_fused", lambda *_: LAB.outcome("fused", "full", "met"))
    LAB.write_reference(tmp_path)
    found = {outcome.task.id: outcome for outcome in LAB.examine(tmp_path, Examiner()).outcomes}
    assert {name: outcome.tier for name, outcome in found.items()} == SOLVED | {"speed": "none"}
    assert "3 of 16 tokens wrong" in found["speed"].message


def test_timed_answers_are_checked():
    """A decoder whose late answers are wrong fails in the race, whatever its speed."""
    model = made.fixed(Parts(mask=made.window(100)).graph())
    good_one = InProcess(lab13_reference.serialized())
    naive = InProcess(network.recomputing())
    with pytest.raises(EngineError, match="timed tokens at late positions"):
        speed.measured(InProcess(model), good_one, naive, Examiner(measure_s=1))


def test_a_decoder_that_fails_is_its_owners_fault(tmp_path):
    with pytest.raises(EngineError), HostedDecoder.start(b"not a model", Examiner()):
        pass
    with pytest.raises(ExaminerFault, match="parsing"):
        HostedDecoder.start(b"not a model", Examiner(), ours=True)


def test_figure_has_axes_and_a_takeaway():
    drawn = figures.cost_by_position([1, 2], {"one": [1.0, 2.0], "two": [1.0, 1.0]}, "a takeaway")
    (axes,) = drawn.axes
    assert axes.get_xlabel() and axes.get_ylabel() and axes.get_title() == "a takeaway"


def test_the_given_decoder_is_the_courses(tmp_path):
    LAB.write_given(tmp_path)
    prompt = truth.secret_prompt(np.random.default_rng(0), 20)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    opened = onnxruntime.InferenceSession(tmp_path / "recomputing.onnx", options)
    (logits,) = opened.run(None, {"tokens": prompt[None]})
    assert truth.error(truth.logits_after(prompt), logits[0]) < 1e-5
