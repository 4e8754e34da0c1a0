"""Lab 13: the reference, another right answer, mistakes and cheats, each with its task, tier and words."""

from __future__ import annotations

from functools import cache
from itertools import combinations
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from course_lib import labs
from course_lib.errors import BuildError, EngineError, ExaminerFault
from course_lib.labs import Examiner, Outcome
from course_lib.labs.framework import onnx_model
from course_lib.labs.framework.criteria import NO_REFERENCE
from course_lib.labs.framework.examination import TimedWorker
from course_lib.labs.framework.runner import Failed, case_criterion
from course_lib.labs.lab13_generation import checks, given, network, reference
from course_lib.labs.lab13_generation.checks import HOST, MODEL, RECIPE
from course_lib.labs.lab13_generation.given import LENGTH, MOST_NEW, POSITIONS, WINDOW
from course_lib.labs.lab13_generation.lab import Generation
from course_lib.labs.lab13_generation.sandboxed import decoder, graph, host
from course_lib.models import decoder as pretrained
from course_lib.models import export_cached
from course_lib.recipe import Profile, Recipe
from tests.labs.quick import examined, tiers
from tests.labs.submissions import lab13 as made
from tests.labs.submissions.lab13 import Parts

LAB = labs.find("lab13")
assert isinstance(LAB, Generation)


class InProcess:
    """A decoder without a process, in a worker's place."""

    def __init__(self, model: bytes) -> None:
        self.opened = given_errors(lambda: decoder.Opened(model))

    def infer(self, feeds):
        return given_errors(lambda: self.opened.infer(feeds))

    def close(self) -> None:
        pass


def given_errors(answer):
    try:
        return answer()
    except Exception as error:
        raise EngineError(str(error).splitlines()[0]) from None


def hosted(model: bytes, examiner=None, *, ours=False) -> TimedWorker:
    return TimedWorker(InProcess(model), ours)


@pytest.fixture
def in_process(monkeypatch) -> None:
    """Everything but the compiler in this process."""
    monkeypatch.setattr(decoder, "hosted", hosted)
    monkeypatch.setattr(onnx_model, "transformed", lambda change, model, *_, **__: change(model))


@pytest.fixture
def folder(tmp_path) -> Path:
    LAB.write_reference(tmp_path)
    return tmp_path


def outcome(folder: Path, model: bytes, task: str) -> Outcome:
    (folder / MODEL).write_bytes(model)
    return examined(LAB, folder, task, Examiner(seed=3, measure_s=1))


# ---- right answers


def test_the_judge_gives_the_reference_full_marks(tmp_path):
    """In the sandbox, where there is one. The race is short, so that a busy machine may leave the speed open."""
    from course_lib.grading.isolation import sandbox
    from course_lib.grading.judge.judging import judge
    from course_lib.grading.reports import report

    LAB.write_reference(tmp_path)
    verdict = judge(LAB, tmp_path, trusted=bool(sandbox.problem()), examiner=Examiner(measure_s=2))
    assert not verdict.fault, verdict.fault
    found = {one.task.id: one.tier for one in verdict.outcomes}
    assert found.pop("speed") in ("full", "inconclusive"), verdict.outcomes[-1].message
    assert set(found.values()) == {"full"}, [one.message for one in verdict.outcomes]
    assert "over recomputing" in report.page(LAB, verdict, "ada")


def test_another_right_answer(folder, in_process):
    """Another mask and other nodes; a host that is a class; and profiles in another order."""
    (folder / HOST).write_text(
        reference.HOST.replace("min(end - position, 128, 256 - position % 256)", "min(end - position, 128 - position % 128)")
    )
    assert examined(LAB, folder, "loop", Examiner(seed=3)).tier == "partial"
    reference.RECIPE.model_copy(update={"profiles": reference.RECIPE.profiles[::-1]}).save(folder / RECIPE)
    for task in ("answers", "requests", "fused"):
        found = outcome(folder, made.ANOTHER(), task)
        assert found.tier == "full", found.message


# ---- mistakes and cheats


@pytest.mark.parametrize("name", made.MISTAKES)
def test_mistake_has_its_words(folder, in_process, name):
    make, task, tier, words = made.MISTAKES[name]
    found = outcome(folder, make(), task)
    assert found.tier == tier and words in found.message, found.message
    assert found.hint


def test_the_lectures_decoder_earns_nothing_with_the_lectures_loop(folder, in_process):
    """It was enough for half of the lab."""
    (folder / HOST).write_text(
        "def serve(step, prompt, count, position):\n    tokens, answer = list(prompt), []\n    while True:\n"
        "        scores = step(tokens, position)\n        position += len(tokens)\n        tokens = [int(scores.argmax())]\n"
        "        answer += tokens\n        if tokens == [10] or len(answer) == count:\n            return bytes(answer)\n"
    )
    (folder / MODEL).write_bytes(made.of_the_lecture())
    examination = LAB.examine(folder, Examiner(seed=3))
    assert set(tiers(examination).values()) == {"none"}, [one.message for one in examination.outcomes]
    assert all(
        "Solve task 1 first" in one.hint for one in examination.outcomes if one.task.id in ("requests", "fused", "speed")
    )


def test_each_known_mistake_is_recognized():
    """Each differs from the right logits and from the other mistakes, by more than rounding."""
    rng = np.random.default_rng(7)
    conversations = [checks.conversation(rng, length) for length in (9, LENGTH + 40)]
    logits = {fault: [network.faulty_logits(fault, *one) for one in conversations] for fault in ("", *network.FAULTS)}
    for one, other in combinations(logits.values(), 2):
        assert max(map(network.error, one, other)) > 3 * network._SAME
    probes = [(*one, found) for one, found in zip(conversations, logits["window_short"], strict=True)]
    assert network.recognized(probes) == network.FAULTS["window_short"]
    probes = [(*one, np.roll(found, 1, axis=1)) for one, found in zip(conversations, logits[""], strict=True)]
    assert network.recognized(probes) == ("", "")


def test_a_ring_gives_the_logits_of_the_whole_conversation():
    tokens, sizes = checks.conversation(np.random.default_rng(7), 500)
    right = network.logits_after(tokens)[np.cumsum(sizes) - 1]
    assert network.error(right, network.faulty_logits("", tokens, sizes)) < 1e-4
    (session,) = [given.Decoder(reference.serialized())]
    found = [
        session.step(tokens[end - size : end], int(end) - size).copy()
        for end, size in zip(np.cumsum(sizes), sizes, strict=True)
    ]
    assert network.error(right, np.stack(found)) < 1e-4


def rejected(model: bytes) -> str:
    with pytest.raises(BuildError) as caught:
        graph.halved(graph.checked(model))
    return str(caught.value)


def test_mistakes_in_inputs_and_outputs():
    grows = rejected(export_cached(pretrained(), "concat", length=LENGTH, last_only=True).SerializeToString())
    assert (
        "past_key_0 is float 1 x 2 x N x 32, expected float 1 x 2 x 256 x 32. A cache that grows is copied in each step"
        in grows
    )
    assert "no input 'position'" in rejected(network.recomputing())
    more = onnx.load_model_from_string(reference.serialized())
    more.graph.output.append(onnx.helper.make_tensor_value_info("/embed/Gather_output_0", 1, [1, None, 192]))
    assert "which is not in the contract" in rejected(more.SerializeToString())


def test_a_file_that_is_not_a_graph(folder):
    found = outcome(folder, b"a text", "answers")
    assert found.points == 0 and "not an ONNX model" in found.message


PROMPTS, SINGLE = reference.RECIPE.profiles


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        (Recipe(precision="fp16", profiles=[PROMPTS]), "1 profiles, expected two"),
        (Recipe(precision="fp16", profiles=[PROMPTS, PROMPTS]), "must be for a single token"),
        (Recipe(precision="fp16", profiles=[SINGLE, SINGLE]), "goes from 1 to 1 tokens"),
        (Recipe(precision="fp16", profiles=[Profile(tokens={"min": (1, 1), "opt": (1, 64), "max": (1, 64)}), SINGLE]), "have 2 to 128"),
        (Recipe(profiles=[PROMPTS, SINGLE]), 'precision = "fp32"'),
        (Recipe(precision="fp16", profiles=[PROMPTS, Profile(tokens={"min": (1,), "opt": (1,), "max": (1,)})]), "each profile gives"),
    ],
)  # fmt: skip
def test_mistakes_in_the_recipe(recipe, words):
    with pytest.raises(BuildError, match=words):
        checks.profiles(recipe)


# ---- the host


@cache
def loaded(text: str):
    names: dict = {}
    exec(text, names)
    return names["serve"]


HOSTS = {
    "whole_prompt": (("min(end - position, 128, 256 - position % 256)", "end - position"), "expected 1 to 128"),
    "beyond_the_end": ((", 256 - position % 256", ""), "goes beyond the last slot"),
    "always_from_zero": (("end = position + len(prompt)", "position, end = 0, len(prompt)"), "is at position 0, and"),
    "position_stays": (("        position += 1\n", ""), "tokens are before it"),
    "no_newline": ((" and answer[-1] != 10", ""), "the answer goes on after its newline"),
    "one_byte_less": (("len(answer) < count", "len(answer) < count - 1"), "the answer ends one byte early"),
    "prompt_again": (("step(answer[-1:], position)", "step(prompt[-1:] or b'?', position)"), "feeds another byte than the one"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTS)
def test_mistake_in_the_host_is_named(name):
    (old, new), words = HOSTS[name]
    assert old in reference.HOST
    serve, complaints = loaded(reference.HOST.replace(old, new)), []
    for case in checks.requests(np.random.default_rng(1)):
        try:
            found = host.served(serve, case.arguments)["answer"]
        except (ValueError, EngineError) as error:
            found = Failed(str(error))
        complaints.append(case_criterion("answered", [case], [found]).found)
    assert any(words in line for line in complaints), complaints


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("min(end - position, 128,", "min(end - position, 1,"),
        ("    return bytes", "    step(answer[-1:], position)\n    return bytes"),
    ],
)
def test_calls_that_waste_time_have_half(folder, old, new):
    (folder / HOST).write_text(reference.HOST.replace(old, new))
    found = examined(LAB, folder, "loop", Examiner())
    assert (found.tier, found.points) == ("partial", 1.0) and "fewest calls" in found.message, found.message


@pytest.mark.parametrize(
    ("position", "new", "calls"), [(0, 1, 1), (0, 300, 3), (200, 100, 2), (128, 128, 1), (64, 128, 1), (250, 300, 4)]
)
def test_the_fewest_calls(position, new, calls):
    assert checks.fewest_calls(position, new, 1) == calls


# ---- the race


def latencies(**changed: float) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    median = {"recomputing": 20.0, "reference": 0.5, "yours, early": 0.5, "yours": 0.5}
    median |= {"yours" if when == "late" else "yours, early": ms for when, ms in changed.items()}
    return {name: ms * rng.normal(1, 0.02, 60) for name, ms in median.items()}


@pytest.mark.parametrize(
    ("changed", "tier", "words"),
    [
        ({}, "full", ""),
        ({"late": 0.85}, "partial", "speed at late positions over early ones"),
        ({"early": 0.9, "late": 0.9}, "partial", "tokens per second over the reference"),
        ({"late": 15.0}, "none", "tokens per second over recomputing"),
        ({"early": 0.625, "late": 0.625}, "inconclusive", ""),
    ],
)
def test_a_race_has_three_outcomes(changed, tier, words):
    rounds = latencies(**changed)
    found = LAB.decided("speed", list(checks.race(rounds)))
    assert found.tier == tier and words in found.message, found.message
    assert LAB.speed_tier(rounds) == tier


def test_without_the_reference_only_the_comparison_with_it_is_open():
    alone = {name: times for name, times in latencies().items() if not name.startswith("reference")}
    found = LAB.decided("speed", list(checks.race(alone)))
    assert found.open and found.code == NO_REFERENCE and found.passed
    slow = {name: 30 * times if name.startswith("yours") else times for name, times in alone.items()}
    lost = LAB.decided("speed", list(checks.race(slow)))
    assert lost.tier == "none" and "over recomputing" in lost.message


def test_timed_answers_are_checked(folder, in_process):
    """A decoder whose late answers are wrong fails in the race, whatever its speed."""
    work = LAB.work(folder, Examiner(measure_s=1, seed=3))
    wrong, right = hosted(Parts(mask=made.no_ring).model()), hosted(reference.serialized())
    with pytest.raises(EngineError, match="timed tokens at late positions"):
        checks.measured(work, wrong, right)


def test_a_decoder_that_fails_is_its_owners_fault():
    with pytest.raises(EngineError):
        decoder.hosted(b"not a model", Examiner())
    with pytest.raises(ExaminerFault, match="parsing"):
        decoder.hosted(b"not a model", Examiner(), ours=True)


def test_answers_that_are_not_finite_say_why(monkeypatch):
    broken = hosted(reference.serialized())
    monkeypatch.setattr(broken.worker, "infer", lambda feeds: {"logits": np.full((1, 256), np.nan, np.float32)})
    with pytest.raises(EngineError, match="NaN or infinite"):
        decoder.feed(broken, np.array([1]), [1])


def test_given_files(tmp_path):
    LAB.write_given(tmp_path)
    tokens = checks.text(np.random.default_rng(0), WINDOW + 40)
    session = onnxruntime.InferenceSession(tmp_path / "recomputing.onnx", providers=["CPUExecutionProvider"])
    (found,) = session.run(["logits"], {"tokens": tokens[None]})
    assert network.error(network.logits_after(tokens), found[0]) < 1e-5
    assert POSITIONS % LENGTH == 0 and LENGTH - WINDOW >= MOST_NEW - 1
