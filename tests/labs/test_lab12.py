"""Lab 12 against its reference, another right answer, and mistakes that learners make."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from course_lib import labs
from course_lib.errors import CourseError, EngineError, PlanError
from course_lib.grading.isolation import sandbox
from course_lib.grading.judge.judging import judge
from course_lib.labs import Examiner
from course_lib.labs.framework.criteria import ALL
from course_lib.labs.lab12_serving import checks, given, reference, triton_schema
from course_lib.labs.lab12_serving.checks import Finding, Load
from course_lib.labs.lab12_serving.sandboxed import stage
from tests.labs.quick import Quick
from tests.labs.submissions import changed, table

LAB = labs.find("lab12")
MADE = table("lab12")
_ = reference.CONFIG
REFERENCE = {**reference.sources(), "config.pbtxt": _}
# The server of the notebook with a store that is right: task 1 can be solved before the others.
GIVEN = {**REFERENCE, "server.py": given.ONE_AT_A_TIME["server.py"] + "\nraise NotImplementedError  # your code here\n"}


def edited(row: dict[str, Any]) -> dict[str, str]:
    """The reference with changes, or with other files."""
    changes = row.get("changes", {})
    return {name: changed(text, changes.get(name, ())) for name, text in REFERENCE.items()} | row.get("files", {})


class Served(Quick):
    """Always the same networks, which are built once."""

    def runnables(self, wanted):
        return [self.runnable(*each) for each in wanted]


EXAMINER = Served(runner="onnxruntime", seed=8, measure_s=1.0)


@pytest.fixture
def narrow(monkeypatch):
    """A small network under load, where no time is judged."""
    monkeypatch.setattr(checks, "WIDE", 256)


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def examined(folder: Path, files: dict[str, str], task: str):
    (outcome,) = LAB.examine(write(folder, files), EXAMINER, only=task).outcomes
    return outcome


# ---- whole submissions


def test_the_judge_gives_the_reference_full_marks(tmp_path):
    """In the sandbox, where there is one. How fast the machine is has no effect."""
    LAB.write_reference(tmp_path)
    verdict = judge(LAB, tmp_path, examiner=Examiner(measure_s=3), trusted=bool(sandbox.problem()))
    assert not verdict.fault, verdict.fault
    assert {outcome.tier for outcome in verdict.outcomes} == {"full"}, verdict.outcomes
    assert verdict.figures["requests_per_run"] > 2


def test_another_design_is_right_as_well(tmp_path):
    outcomes = LAB.examine(write(tmp_path, REFERENCE | MADE["another"]), EXAMINER).outcomes
    assert {outcome.tier for outcome in outcomes} == {"full"}, outcomes


def test_task_1_is_decided_with_the_given_server(tmp_path):
    assert examined(tmp_path, GIVEN, "cache").tier == "full"


@pytest.mark.parametrize("name", MADE["mistakes"])
def test_mistake(name, tmp_path, narrow):
    mistake = MADE["mistakes"][name]
    outcome = examined(tmp_path, edited(mistake), mistake["task"])
    assert outcome.tier == mistake["tier"] and mistake["words"] in outcome.message and outcome.hint, outcome


def test_a_server_in_which_no_request_waits_for_another(tmp_path, narrow):
    outcome = examined(tmp_path, GIVEN, "throughput")
    assert outcome.tier == "none" and "requests per run is 1" in outcome.message, outcome


# ---- one scene


def played(files: dict[str, str], *names: str) -> list[Finding]:
    return checks.played({name: files[name] for name in ("store.py", "server.py")}, names, EXAMINER)


@pytest.mark.parametrize("name", MADE["lost"])
def test_a_scene_is_lost(name):
    (found,) = played(edited(MADE["lost"][name]), MADE["lost"][name]["scene"])
    assert found.problem, f"{name} was not found"


def test_a_server_may_build_at_its_first_request():
    assert [found.problem for found in played(edited(MADE["lazy"]), "warm start", "rollout")] == ["", ""]


@pytest.mark.parametrize(
    ("server", "words"),
    [
        ("class Other: ...", "defines no class Server"),
        ("import torch", "may import numpy and Python's own modules"),
        ("import os; os._exit(0)", "its process died"),
        (
            "class Server:\n def __init__(self, *given): ...\n def answer(self, feeds): return 5",
            "answer returned int, expected",
        ),
    ],
)
def test_a_server_that_never_answers_is_not_told_about_faults(server, words, tmp_path):
    outcome = examined(tmp_path, {**REFERENCE, "server.py": server}, "requests")
    assert outcome.points == 0 and words in outcome.message and outcome.hint == checks.NEVER_RIGHT


def test_a_lost_scene_leaves_half_and_a_wrong_answer_leaves_nothing():
    def points(lost: int, wrong: int = 0) -> float:
        found = [Finding(name, wrong * (n == 0), "trouble" * (n < lost)) for n, name in enumerate(stage.CACHE_SCENES)]
        return LAB.decided("cache", list(checks.survival(found))).points

    assert [points(n) for n in (0, 1, 2)] == [3, 1.5, 0] and points(1, wrong=1) == 0
    assert set(checks.HINTS) == {*stage.CACHE_SCENES, *stage.REQUEST_SCENES}


def test_recipes_differ_in_one_value_each():
    usual = given.recipe().wire()
    for other in checks.other_recipes(np.random.default_rng(1)).values():
        assert sum(value != usual[name] for name, value in other.wire().items()) == 1


# ---- throughput, by times that are given


def times(yours_ms: float = 100.0, given_ms: float = 250.0, extra_ms: float = 1.0, runs: int = 8, wrong: int = 0) -> Load:
    noise = np.linspace(0.99, 1.01, 20)
    burst_ms = {"yours": yours_ms * noise, "given": given_ms * noise}
    return Load(burst_ms, {"yours": (3 + extra_ms) * noise, "given": 3 * noise}, np.full(20, runs), wrong)


@pytest.mark.parametrize(
    ("load", "tier", "hint"),
    [
        (times(), "full", ""),
        (times(runs=45), "full", ""),
        (times(runs=64), "none", "What do 15 requests do"),
        (times(runs=52), "partial", "What do 15 requests do"),
        (times(yours_ms=280), "partial", "What do 15 requests do"),
        (times(extra_ms=9), "partial", "arrives alone"),
        (times(wrong=1), "none", "Which rows of a run"),
        (times(yours_ms=250 / 1.1), "full", ""),  # times that do not decide count for the learner
    ],
)
def test_tiers_of_throughput(load, tier, hint):
    outcome = LAB.decided("throughput", list(checks.throughput_of(load)))
    assert outcome.tier == tier and hint in outcome.hint, outcome
    assert f"requests per run: {load.requests_per_run:.3g}" in outcome.message or load.requests_per_run < checks.SHARED[ALL]


def test_a_given_server_that_does_not_answer_is_not_the_learners_fault(monkeypatch, narrow):
    monkeypatch.setattr(checks, "ONE_AT_A_TIME", {"store.py": "", "server.py": "raise KeyError"})
    with pytest.raises(CourseError, match="the given server: a server did not start"):
        checks.measured(reference.sources(), EXAMINER)


# ---- Triton


def configured(text: str):
    config = triton_schema.parsed(text)
    return LAB.decided("triton", list(checks.requirements(config)))


@pytest.mark.parametrize(
    "text",
    [
        _,
        _.replace('platform: "tensorrt_plan"', 'backend: "tensorrt"').replace('name: "scorer"', ""),
        _.replace("count: 2 }", "count: 1 }, { count: 1 gpus: 0 }").replace("latest { num_versions: 2 }", "all { }"),
        _.replace("preferred_batch_size: [ 8, 16 ]", "").replace("num_versions: 2", "num_versions: 3"),
        _.replace("latest { num_versions: 2 }", "specific { versions: [ 1, 2 ] }") + "optimization { cuda { graphs: true } }",
    ],
)
def test_configurations_that_are_right(text):
    assert configured(text).tier == "full", configured(text)


@pytest.mark.parametrize(
    ("old", "new", "tier", "words"),
    [
        ("max_batch_size: 16", "max_batch_size: 0", "none", "max_batch_size 0"),
        ("[ 256 ]", "[ -1, 256 ]", "none", "[-1, 256]"),
        ("[ 8, 16 ]", "[ 8, 32 ]", "none", "preferred [8, 32]"),
        ('name: "features"', 'name: "input"', "none", "input TYPE_FP32"),
        ("KIND_GPU", "KIND_CPU", "partial", "not only on GPU 0"),
        ("count: 2", "count: 2 gpus: 1", "partial", "not only on GPU 0"),
        ("count: 2 }", "count: 2 }, { count: 1 }", "partial", "execution contexts is 3"),
        ("size: 16", "size: 8", "none", "preferred [8, 16]"),
        ("[ 8, 16 ]", "[ 1, 16 ]", "partial", "preferred [1, 16]"),
        ("count: 2", "count: 1", "partial", "execution contexts is 1 on the GPU"),
        ("microseconds: 1000", "microseconds: 1000000", "partial", "1,000,000 us"),
        ("num_versions: 2", "num_versions: 1", "partial", "versions is"),
        ("dynamic_batching {", "metric_tags { key: 'x' value: 'y' } #", "partial", "dynamic_batching absent"),
    ],
)
def test_configurations_that_are_wrong(old, new, tier, words):
    assert old in _
    outcome = configured(_.replace(old, new))
    assert outcome.tier == tier and words in outcome.message and outcome.hint, outcome


def test_all_mistakes_of_a_configuration_are_listed_and_three_of_them_leave_nothing(tmp_path):
    two = _.replace("count: 2", "count: 1").replace("num_versions: 2", "num_versions: 1")
    outcome = examined(tmp_path, {"config.pbtxt": two}, "triton")
    assert outcome.tier == "partial" and "execution contexts is 1" in outcome.message and "versions is" in outcome.message
    assert examined(tmp_path, {"config.pbtxt": two.replace("1000 }", "0 }")}, "triton").points == 0
    outcome = examined(tmp_path, {"config.pbtxt": _.replace("max_batch_size", "max_batchsize")}, "triton")
    assert outcome.points == 0 and "no field named" in outcome.message and "Line and column" in outcome.hint
    assert examined(tmp_path, {"config.pbtxt": ""}, "triton").points == 0


def test_a_missing_schema_is_not_the_learners_fault(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tritonclient", None)
    with pytest.raises(CourseError, match="tritonclient"):
        examined(tmp_path, {"config.pbtxt": _}, "triton")


# ---- what the notebook gives


def test_the_scorer_is_what_its_onnx_file_says():
    import onnxruntime

    scorer = given.Scorer(seed=3, hidden=64)
    session = onnxruntime.InferenceSession(scorer.onnx(), providers=["CPUExecutionProvider"])
    features = np.random.default_rng(0).normal(size=(5, 256)).astype(np.float32)
    assert np.abs(session.run(None, {"features": features})[0] - scorer.scores(features)).max() < 1e-4


def test_a_server_in_the_notebook(tmp_path):
    with pytest.raises(CourseError, match=r"scorer.onnx is not in .*: run the notebook's cell"):
        given.start(tmp_path)
    given.write_given(tmp_path)
    server = given.start(write(tmp_path, REFERENCE))
    scored, large, empty = given.ask(server, [{"features": np.zeros((n, 256), np.float32)} for n in (2, 17, 0)])
    assert scored["scores"].shape == (2, 8) and isinstance(large, ValueError) and isinstance(empty, ValueError)
    before = given.ask(server, [{"features": np.ones((1, 256), np.float32)}])[0]["scores"]
    (tmp_path / "other.onnx").write_bytes(given.Scorer(seed=5, hidden=64).onnx())
    server.reload(tmp_path / "other.onnx")
    assert np.abs(given.ask(server, [{"features": np.ones((1, 256), np.float32)}])[0]["scores"] - before).max() > 1e-3
    server.answer = lambda feeds: {"scores": None}
    assert "answer returned {'scores': None}, expected" in str(
        given.ask(server, [{"features": np.ones((1, 256), np.float32)}])[0]
    )


def test_engines_of_the_notebook_raise_what_the_graders_raise(tmp_path):
    given.write_given(tmp_path)
    engines = given.engines()
    plan = engines.build((tmp_path / "scorer.onnx").read_bytes(), given.recipe().wire())
    older = given.Engines("1.0", engines.device, engines.build)
    for wrong in (b"", plan[:50], b"nothing\n" + plan, b"[1]\n"):
        with pytest.raises(PlanError):
            engines.load(wrong)
    with pytest.raises(PlanError, match=r"the plan was built by .*, this is 1.0 on"):
        older.load(plan)
    context = engines.load(plan)

    def meets_another(feeds):
        engines.before_run = lambda feeds: None
        context.infer(feeds)

    engines.before_run = meets_another
    with pytest.raises(EngineError, match="two threads"):
        context.infer({"features": np.zeros((1, 256), np.float32)})
