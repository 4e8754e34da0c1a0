"""Lab 09 against its reference, another right loop, mistakes that learners make, and cheats."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from course_lib import labs
from course_lib.labs import Examiner, Outcome
from course_lib.labs.framework import runner
from course_lib.labs.lab09_runtime import checks, given
from course_lib.labs.lab09_runtime.lab import ByHand
from course_lib.labs.lab09_runtime.reference import SERVING_LOOP
from course_lib.labs.lab09_runtime.sandboxed import run_loop
from course_lib.standin import costs, gpu
from tests.labs.quick import tiers
from tests.labs.submissions import changed, table

LAB = labs.find("lab09")
assert isinstance(LAB, ByHand)
MADE = table("lab09")
SOLVED = {task.id: "full" for task in LAB.tasks}
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The loop runs in this process."""

    def answer(command, question, **_):
        return json.dumps(run_loop.answers(json.loads(question))).encode()

    monkeypatch.setattr(runner, "run_isolated", answer)
    gc.collect()
    gc.freeze()  # the process of a loop has little to collect, and this one much
    yield
    gc.unfreeze()
    gpu.reset()


def examined(folder: Path, source: str, seed: int = 3) -> dict[str, Outcome]:
    (folder / run_loop.FILE).write_text(source)
    return {outcome.task.id: outcome for outcome in LAB.examine(folder, Examiner(seed=seed)).outcomes}


def edited(row: dict[str, Any]) -> str:
    """The reference with changes."""
    return changed(SERVING_LOOP, row["changes"][run_loop.FILE])


def plain_scene(seed: int) -> given.Scene:
    return given.scenes(np.random.default_rng(seed))[0]


# Right answers


@pytest.mark.parametrize(
    "source",
    (SERVING_LOOP, MADE["three_streams"], edited(MADE["cuda_python"])),
    ids=("two sets", "three streams", "cuda-python"),
)
def test_right_answers_have_full_marks(source, tmp_path, in_process):
    (tmp_path / run_loop.FILE).write_text(source)
    assert tiers(LAB.examine(tmp_path, Examiner(seed=4))) == SOLVED


def test_the_reference_takes_the_time_of_two_sets(tmp_path, in_process):
    LAB.write_reference(tmp_path)
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


@pytest.mark.parametrize("name", MADE["mistakes"])
def test_a_mistake_is_named(name, tmp_path, in_process):
    mistake = MADE["mistakes"][name]
    found = examined(tmp_path, edited(mistake))
    tiers = {task: tier for task, (tier, _) in mistake["tasks"].items()}
    assert {task: outcome.tier for task, outcome in found.items()} == SOLVED | tiers
    for task, (_, words) in mistake["tasks"].items():
        assert words in f"{found[task].message} {found[task].hint}" and found[task].hint, found[task]


def test_a_serial_loop_has_less_than_half_of_the_points(tmp_path, in_process):
    serial = edited(MADE["mistakes"]["it waits after each request"])
    assert sum(outcome.points for outcome in examined(tmp_path, serial).values()) == 4.5


def test_ordinary_memory_costs_time_only(tmp_path, in_process):
    found = examined(tmp_path, edited(MADE["ordinary_memory"]))
    assert {task: outcome.tier for task, outcome in found.items()} == SOLVED | {"overlap": "none"}
    assert "an allocation, among the calls for each request" in found["overlap"].hint


# Cheats


def test_answers_that_no_run_computed_have_no_points(tmp_path, in_process):
    """Whatever they are: right ones that numpy computed, or memorized ones."""
    LAB.write_reference(tmp_path)
    work = LAB.work(tmp_path, Examiner(seed=3))
    work.results["served"] = tuple(replace(one, rows=0, runs=0, home=0) for one in work.served)
    for task in LAB.tasks:
        outcome = LAB.decided(task.id, list(task.check(work)))
        assert outcome.points == 0 and "only 0 of 432 rows" in outcome.message


def test_the_reference_cannot_be_imported(tmp_path):
    found = examined(tmp_path, "from course_lib.labs.lab09_runtime.reference import *\n")
    assert sum(outcome.points for outcome in found.values()) == 0
    assert "may import numpy, tensorrt, pycuda, cuda and Python's own modules, not 'course_lib" in found["answers"].message


# What the notebook uses


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
