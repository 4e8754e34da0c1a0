"""Lab 03 against its reference, another right answer, and mistakes that learners make."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from course_lib import labs
from course_lib.engines import Compiler
from course_lib.labs import Examiner, withheld
from course_lib.labs.lab03_tuning import checks, given, reference
from course_lib.labs.lab03_tuning.device import Device, problem
from course_lib.recipe import Recipe
from tests.labs.quick import check_mistake, check_solved, examined
from tests.labs.submissions import lab03 as made

LAB = labs.find("lab03")


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reference")
    LAB.write_reference(folder)
    return folder


@pytest.fixture
def folder(solved: Path, tmp_path: Path) -> Path:
    """A copy of the reference."""
    return Path(shutil.copytree(solved, tmp_path / "submission"))


def test_the_reference_has_full_marks(folder):
    check_solved(LAB, LAB.examine(folder, Examiner(seed=3)))


def test_another_right_answer_is_decided_without_the_reference(folder, monkeypatch):
    made.another(folder)
    monkeypatch.setitem(sys.modules, reference.__name__, withheld)
    check_solved(LAB, LAB.examine(folder, Examiner(seed=1)))


@pytest.mark.parametrize("name", made.MISTAKES)
def test_a_mistake_is_named(name, folder):
    check_mistake(LAB, folder, made.MISTAKES[name], Examiner(seed=3))


# Answers of another form, and limits


def _with(name: str, **values: Any) -> Callable[[Path], None]:
    return lambda folder: made.write(folder, name, made.read(folder, name) | values)


@pytest.mark.parametrize(
    ("make", "task", "words"),
    [
        (_with("widths", stem="64"), "widths", "answers.json: widths: stem: Input should be a valid integer, found '64'"),
        (lambda folder: made.write(folder, "builds", {"conditions": {}, "setting": ""}), "builds", "ratios is 0 of 6"),
        (_with("nights", reason={"differs": "nothing", "new_tactics": 0, "why": ""}), "rebuild", "key 'reason.why': remove it"),
        (_with("builds", setting="alone"), "builds", "the setting follows from the verdicts"),
        (
            lambda folder: given.encoder_recipe(8, 16).save(folder / "recipe.toml"),
            "recipe",
            "tokens of a sequence in opt is 16",
        ),
    ],
)
def test_what_is_wrong_with_an_answer_is_said(make, task, words, folder):
    make(folder)
    outcome = examined(LAB, folder, task, Examiner(seed=3))
    assert outcome.tier != "full" and outcome.hint and words in outcome.message, outcome.message


def test_without_an_id_an_instructor_decides(folder):
    made.write(folder, "learner", "")
    outcomes = LAB.examine(folder, Examiner(seed=3)).outcomes
    assert [one.tier for one in outcomes] == ["inconclusive"] * 3 + ["full", "inconclusive", "full"]


def test_answers_of_a_friend_are_wrong(folder):
    made.write(folder, "learner", "a friend")
    points = {one.task.id: one.points for one in LAB.examine(folder, Examiner(seed=3)).outcomes}
    assert points == {"widths": 0, "recipe": 0, "rebuild": 0, "timing": 2, "builds": 0, "cache": 2}


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("tactics * (budget // len(tactics))", "tactics[:5]", "order did not return a list in which each tactic occurs"),
        ("return chosen, typical[chosen]", "return chosen", "fastest did not return the name of a tactic"),
    ],
)
def test_what_is_wrong_with_a_function_is_said(old, new, words, tmp_path):
    (tmp_path / "timing.py").write_text(reference.TIMING.replace(old, new))
    outcome = examined(LAB, tmp_path, "timing", Examiner(seed=3))
    assert outcome.points == 0 and outcome.hint and words in outcome.message, outcome.message


# Hints about choices, by what they have in common


@pytest.mark.parametrize(
    ("order", "ratio", "place", "words"),
    [
        ("once", 1.0, 0, "How many runs of each tactic are left"),
        ("blocks", 1.0, 0, "runs once in each round"),
        ("rounds", 1.2, 0, "Drop the first run"),
        ("rounds", 1.0, -1, "How large is your tolerance"),
        ("rounds", 1.0, 0, "noise or the order of the list decides"),
    ],
)
def test_the_hint_fits_the_choices(order, ratio, place, words):
    asked = problem(0.04, np.random.default_rng(1))
    names = sorted(asked.true_ms, key=asked.true_ms.__getitem__)
    runs = {"once": names, "blocks": sorted(15 * names), "rounds": 15 * names}[order]
    choice = checks.Choice(asked, runs, names[place], ratio * asked.true_ms[names[place]])
    assert words in checks._timing_hint([choice] * 30)


# What is drawn


def test_a_device_has_the_disturbances_that_it_names():
    rng = np.random.default_rng(1)
    tactics = problem(0.04, rng)
    name = next(iter(tactics.true_ms))
    devices = [Device(tactics.true_ms, rng) for _ in range(50)]
    ratios = np.array([[device.run(name) for _ in range(device.budget)] for device in devices]) / tactics.true_ms[name]
    assert ratios[:, 0].min() > 2 and np.median(ratios[:, 40:]) < 1.03
    assert (ratios[:, 40:] > 1.2).mean() > 0.08


def test_one_to_five_tactics_of_a_layer_are_equally_fast():
    rng, counts = np.random.default_rng(1), set()
    for tactics in (problem(0.04, rng) for _ in range(100)):
        ratios = np.array([*tactics.true_ms.values()]) / tactics.best_ms
        counts.add(int((ratios <= 1.003).sum()))
        assert len(ratios) == 10 and not ((ratios > 1.003) & (ratios < 1.049)).any()
    assert counts == {1, 2, 3, 4, 5}


def test_each_batch_of_the_record_shows_one_setting_and_leaves_others_open():
    instances = {one.batch: one for one in (given.drawn(str(seed)) for seed in range(20))}
    assert set(instances) == {1, 2, 4}
    for one in instances.values():
        answer = reference.builds(one)
        verdicts = {row["verdict"] for row in answer["conditions"].values()}  # type: ignore[attr-defined]
        assert verdicts == {"as fast", "slower", "open"}
        assert answer["setting"] == "16 busy loops, timing cache of a quiet build"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_every_instance_has_an_answer(seed):
    one = given.drawn(str(seed))
    with Compiler(given.BUILDER) as compiler:
        chosen = reference.widths(compiler, one)
        assert chosen["hidden"] == one.widths["hidden"] and chosen["stem"] == one.widths["stem"] + 1
        assert given.LENGTHS[1] > one.length and 1 < reference.opt_batch(compiler, one) < given.SEQUENCES[1]
        answers = reference.nights(compiler, one)
    found = [(answers[night]["differs"], answers[night]["new_tactics"]) for night in sorted(one.changes, key=one.changes.get)]
    assert found == [("kernels", 1), ("tactics", 3), ("nothing", 0), ("nothing", 0), ("tactics", 3), ("weights", 0)]


# TensorRT's own timing cache


@pytest.mark.parametrize(
    ("seconds", "tactics", "met"),
    [((3.0, 1.6, 1.7), "aaa", [True, True]), ((3.0, 2.9, 1.7), "aaa", [False, True]), ((3.0, 1.6, 1.7), "aab", [True, False])],
)
def test_a_rebuild_on_a_gpu_is_short_and_has_the_same_tactics(seconds, tactics, met, folder):
    kernels = [[SimpleNamespace(tactic=tactic)] for tactic in tactics]
    layers = [SimpleNamespace(kernels=several) for several in kernels]
    plans = [SimpleNamespace(build_seconds=took, layers=table) for took, table in zip(seconds, layers, strict=True)]
    commands: list[list[str]] = []

    class OnGpu(Examiner):
        on_gpu = True  # type: ignore[assignment]

        def build(self, model: Path, recipe: Any) -> Any:
            assert self.launcher and model.is_file() and (recipe.precision, recipe.optimization_level) == ("fp32", theirs)
            commands.append(self.launcher(["python"]))
            return plans[len(commands) - 1]

    theirs = Recipe.load(folder / "recipe.toml").optimization_level
    with checks.TuningWork(LAB, folder, OnGpu(builder="tensorrt")) as work:
        assert [criterion.met for criterion in checks._real_cache(work)] == met
        work.examiner = replace(work.examiner, builder="tensorrt_rtx")
        assert list(checks._real_cache(work)) == []
    assert commands == 3 * [["env", f"COURSE_TIMING_CACHE={work.scratch / 'timings'}", "python"]]
