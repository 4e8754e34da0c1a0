"""Lab 09 against its reference, another right loop, mistakes that learners make, and cheats."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from course_lib import labs
from course_lib.errors import EngineError
from course_lib.labs import Examiner, Outcome
from course_lib.labs.lab09_runtime import checks, figures, given
from course_lib.labs.lab09_runtime.lab import ByHand
from course_lib.labs.lab09_runtime.reference import SERVING_LOOP
from course_lib.labs.lab09_runtime.sandboxed import run_loop
from course_lib.standin import costs, gpu
from tests.labs.quick import tiers
from tests.labs.submissions import lab09 as made

LAB = labs.find("lab09")
assert isinstance(LAB, ByHand)
SOLVED = {task.id: "full" for task in LAB.tasks}
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The loop runs in this process."""

    def answer(command, question, **_):
        return json.dumps(run_loop.answers(json.loads(question))).encode()

    monkeypatch.setattr(checks, "run_isolated", answer)
    gc.collect()
    gc.freeze()  # the process of a loop has little to collect, and this one much
    yield
    gc.unfreeze()
    gpu.reset()


def examined(folder: Path, source: str, seed: int = 3) -> dict[str, Outcome]:
    made.write(folder, source)
    return {outcome.task.id: outcome for outcome in LAB.examine(folder, Examiner(seed=seed)).outcomes}


def plain_scene(seed: int) -> given.Scene:
    return given.scenes(np.random.default_rng(seed))[0]


# Right answers


@pytest.mark.parametrize("seed", (3, 4))
@pytest.mark.parametrize(
    "source", (SERVING_LOOP, made.THREE_STREAMS, made.CUDA_PYTHON), ids=("two sets", "three streams", "cuda-python")
)
def test_right_answers_have_full_marks(source, seed, tmp_path, in_process):
    made.write(tmp_path, source)
    assert tiers(LAB.examine(tmp_path, Examiner(seed=seed))) == SOLVED


def test_the_reference_takes_the_time_of_two_sets(tmp_path, in_process):
    made.write(tmp_path, SERVING_LOOP)
    (served,) = checks.serve(tmp_path / run_loop.FILE, [plain_scene(3)])
    two = given.turns(served.scene.requests, 2).time_us
    assert served.schedule.time_us == pytest.approx(two, rel=0.02)


def test_the_notebook_has_the_references_loop():
    cells = json.loads((ROOT / "solutions" / LAB.name / f"{LAB.name}.ipynb").read_text())["cells"]
    (source,) = ("".join(cell["source"]) for cell in cells if cell["id"] == "loop")
    kept = [line for line in source.splitlines(keepends=True)[1:] if "### " not in line]
    assert "".join(kept).rstrip() == SERVING_LOOP.rstrip()


# No answers


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import tensorrt\n\n1 / 0\n", "serving_loop.py: line 3: ZeroDivisionError"),
        ("def server(plan, requests):\n    return []\n", "does not define the function serve(plan, requests)"),
        ("def serve(plan, requests):\n    return 7\n", "it must return a list of arrays and None"),
        ("def serve(plan, requests):\n    return []\n", "The list has 0 entries for 18 requests"),
    ],
)
def test_what_fails_as_a_whole(source, words, tmp_path, in_process):
    found = examined(tmp_path, source)
    assert sum(outcome.points for outcome in found.values()) == 0
    assert words in found["answers"].message and found["answers"].hint


def test_a_loop_that_never_ends_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(checks, "TIME_LIMIT_S", 2.0)
    found = examined(tmp_path, "def serve(plan, requests):\n    while True: pass\n")
    assert all(outcome.tier == "none" and "within 2 s" in outcome.message for outcome in found.values())


# Mistakes


@pytest.mark.parametrize("name", made.MISTAKES)
def test_a_mistake_is_named(name, tmp_path, in_process):
    changes, costs_points = made.MISTAKES[name]
    found = examined(tmp_path, made.changed(changes))
    assert {task: outcome.tier for task, outcome in found.items()} == SOLVED | {
        task: tier for task, (tier, _) in costs_points.items()
    }
    for task, (_, words) in costs_points.items():
        assert words in f"{found[task].message} {found[task].hint}" and found[task].hint, found[task]


def test_a_serial_loop_has_less_than_half_of_the_points(tmp_path, in_process):
    assert sum(outcome.points for outcome in examined(tmp_path, made.changed(made.ONE_SET)).values()) == 4.5


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("cuda.pagelocked_empty(", "np.empty("),
        ("        rows = len(request)\n", "        rows = len(request)\n        cuda.mem_alloc(4096).free()\n"),
    ],
    ids=("ordinary memory", "it allocates for each request"),
)
def test_what_costs_time_only(old, new, tmp_path, in_process):
    found = examined(tmp_path, made.changed({old: new}))
    assert {task: outcome.tier for task, outcome in found.items()} == SOLVED | {"overlap": "none"}
    assert "an allocation, among the calls for each request" in found["overlap"].hint


# Cheats


def test_answers_that_no_run_computed_have_no_points(tmp_path, in_process):
    """Whatever they are: right ones that numpy computed, or memorized ones."""
    made.write(tmp_path, SERVING_LOOP)
    work = LAB.work(tmp_path, Examiner(seed=3))
    work.results["served"] = tuple(replace(one, rows=0, runs=0, home=0) for one in work.served)
    for task in LAB.tasks:
        outcome = LAB.decided(task.id, list(task.check(work)))
        assert outcome.points == 0 and "only 0 of 432 rows" in outcome.message


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (made.DROPS_WAITS, "may import numpy, tensorrt, pycuda, cuda and Python's own modules, not 'course_lib"),
        ("from course_lib.labs.lab09_runtime.reference import *\n", "and Python's own modules, not 'course_lib"),
        (made.ON_THE_HOST, "No such file"),
    ],
    ids=("the stand-in is changed", "the reference is imported", "scores from numpy"),
)
def test_a_cheat_gains_nothing(source, words, tmp_path):
    found = examined(tmp_path, source)
    assert sum(outcome.points for outcome in found.values()) == 0
    assert words in found["answers"].message


# The answer of a hostile process

RECORD = {
    "answers": [None],
    "mistakes": [{"kind": "unwritten", "earlier": "", "later": "the run"}],
    "mistake_count": 1,
    "left": dict.fromkeys(checks.TAKEN, 0),
    "rows": 1,
    "runs": 1,
    "home": 128,
    "in_flight": 0,
    "rejected": [[0, "enqueueV3", "no"]],
    "intervals": [["in", "copy", 0, 1, "runs"]],
    "time_us": 1.0,
}


@pytest.mark.parametrize(
    "change",
    [
        {"answers": 7},
        {"answers": [{"dtype": "O", "shape": [1], "data": "AAAAAAAAAAA="}]},
        {"mistakes": [{"kind": "none", "earlier": "", "later": ""}]},
        {"time_us": "short"},
    ],
)
def test_an_answer_in_another_form_is_rejected(change, tmp_path, monkeypatch):
    made.write(tmp_path, SERVING_LOOP)
    scene = given.Scene(given.PLAIN, (np.zeros((1, 128), np.float32),))
    monkeypatch.setattr(checks, "run_isolated", lambda *_, **__: json.dumps({"scenes": [RECORD]}).encode())
    assert checks.serve(tmp_path / run_loop.FILE, [scene])[0].rows == 1
    monkeypatch.setattr(checks, "run_isolated", lambda *_, **__: json.dumps({"scenes": [RECORD | change]}).encode())
    with pytest.raises(EngineError, match="did not answer as the stand-in does"):
        checks.serve(tmp_path / run_loop.FILE, [scene])


# What the notebook uses


def test_the_schedule_of_a_loop_is_drawn(tmp_path, in_process):
    made.write(tmp_path, SERVING_LOOP)
    plain = plain_scene(2).requests
    axes = figures.draw_schedule(LAB.schedule(plain, tmp_path / run_loop.FILE), "Copies beside runs").axes[0]
    assert axes.get_xlabel() == "time by the cost model (us)"
    units = [label.get_text() for label in axes.get_yticklabels()]
    assert units[1:] == ["copies to the device", "copies to the host", "runs"]
    made.write(tmp_path, "def serve(plan, requests):\n    raise KeyError(1)\n")
    with pytest.raises(EngineError, match=r"serving_loop\.py: line 2: KeyError"):
        LAB.schedule(plain, tmp_path / run_loop.FILE)


def test_the_given_plan_is_the_graders(tmp_path):
    from course_lib.standin import tensorrt_module

    LAB.write_given(tensorrt_module.make(given.VERSION), tmp_path)
    assert (tmp_path / "engine.plan").read_bytes() == given.plan()


def test_more_sets_of_buffers_are_faster_up_to_a_bound():
    plain = plain_scene(3).requests
    one, two, three, eight = (given.turns(plain, sets).time_us for sets in (1, 2, 3, 8))
    runs = sum(costs.RUN_US + costs.ROW_US * len(request) for request in plain)
    assert runs < eight <= three < two < 0.7 * one


def test_every_scene_needs_both_profiles_and_has_its_rejected_ones():
    for seed in range(20):
        for scene in given.scenes(np.random.default_rng(seed)):
            rows = [len(request) for request in scene.requests if given.fits(request)]
            assert min(rows) <= given.PROFILES[0][-1] < max(rows)
            columns = [request.shape[1] for request in scene.requests if not given.fits(request)]
            assert len(columns) == (4 if scene.name == given.MIXED else 0)
            assert not columns or min(columns) < given.COLUMNS < max(columns)
