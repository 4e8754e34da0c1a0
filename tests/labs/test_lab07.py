"""Lab 07: the reference, other right answers, and mistakes, each with its task, tier and words."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest

from course_lib import labs
from course_lib.benchmark import Comparison, Measurement
from course_lib.engines import build, load
from course_lib.errors import EngineError
from course_lib.grading.judge.judging import judge
from course_lib.labs import Examination, Examiner
from course_lib.labs.framework import submission
from course_lib.labs.framework.criteria import NO_REFERENCE, NOT_EXAMINED
from course_lib.labs.lab07_dynamic_shapes import checks, given, reference
from course_lib.labs.lab07_dynamic_shapes.checks import RECIPE, SEARCH, Service
from course_lib.labs.lab07_dynamic_shapes.given import FILE, LARGEST, Habits, profile, recipe
from course_lib.labs.lab07_dynamic_shapes.lab import DynamicShapes
from course_lib.recipe import Recipe
from tests.labs.quick import check_mistake, tiers
from tests.labs.submissions import mistakes, table

LAB = labs.find("lab07")
assert isinstance(LAB, DynamicShapes)
LEARNER = "reference"
MADE = table("lab07")


class Built:
    """What `cover` looks at in a plan."""

    class layers:
        kernels = (1, 2)


class Modeled:
    """An engine that takes as long as its shape has tokens, give or take 2 %."""

    def __init__(self, faster: float = 1.0) -> None:
        self.faster, self.rng = faster, np.random.default_rng(0)

    def timed(self, feeds):
        batch, length = feeds["mask"].shape
        return (60 + batch * length) / 20 / self.faster * self.rng.normal(1, 0.02), {}


def modeled(work: checks.ShapesWork) -> Comparison:
    """The measurement, with engines whose times are known."""
    best = reference.cheapest(reference.by_tokens(), work.hidden)
    ranges = given.ranges(work.recipe)
    services = {
        "eager": Service(Modeled(0.9), [LARGEST], [1.0]),
        "one profile": Service(Modeled(), [LARGEST], [1.0]),
        "reference": Service(Modeled(), best, checks.bill([((1, 1), box) for box in best], work.hidden)[0]),
        "yours": Service(Modeled(), [largest for _, largest in ranges], checks.bill(ranges, work.hidden)[0]),
    }
    feeds = given.batch(np.random.default_rng(0))
    latencies = {name: Measurement(np.array([one.time_ms(feeds) for _ in range(30)])) for name, one in services.items()}
    return Comparison("eager", latencies, {}, 0.0, "precise")


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """The reference, timed by engines that are modeled."""
    monkeypatch.setattr(checks, "measured", modeled)
    monkeypatch.setattr(Examiner, "build", lambda self, model, recipe: Built)
    LAB.write_reference(tmp_path)
    return tmp_path


def examine(folder: Path, only: str | None = None) -> Examination:
    return LAB.examine(folder, Examiner(seed=1), only)


def said(examined: Examination, task: str) -> str:
    return next(f"{outcome.message} {outcome.hint}" for outcome in examined.outcomes if outcome.task.id == task)


@cache
def best(learner: str = LEARNER) -> tuple[given.Box, ...]:
    return tuple(reference.cheapest(reference.by_tokens(), given.yesterday(learner).counts()))


# ---- right answers


def test_the_reference_has_full_marks(folder):
    examined = examine(folder)
    assert set(tiers(examined).values()) == {"full"} and examined.points == 10, [one.message for one in examined.outcomes]


def test_another_search_and_profiles_side_by_side_are_right(folder):
    (folder / SEARCH).write_text(MADE["brute_force"])
    tiles = Recipe(profiles=(profile((16, 32)), profile((9, 128), (1, 33)), profile(LARGEST, (10, 33))))
    tiles.save(folder / RECIPE)
    found = tiers(examine(folder))
    assert found.pop("cost") != "inconclusive" and set(found.values()) == {"full"}


def test_a_missing_file_costs_the_tasks_that_need_it(folder):
    (folder / SEARCH).unlink()
    assert tiers(examine(folder, "cover")) == {"cover": "full"}
    (folder / RECIPE).write_text("precision = 3")
    verdict = judge(LAB, folder, trusted=True)
    words = {"cover": "precision", "account": "search.py is missing", "search": "search.py is missing", "cost": "precision"}
    assert all(words[outcome.task.id] in outcome.message for outcome in verdict.outcomes)


# ---- mistakes: what is changed in the recipe or the search, the task, the tier and words

FIRST, SECOND = best()[:2]
RECIPES = {
    "one profile": (recipe(LARGEST), "cost", "none", "speed over one profile is"),
    "a gap": (Recipe(profiles=(profile((16, 32)), profile(LARGEST, (1, 40)))), "cover", "none", "1 x 33 is not"),
    "tuned to what is frequent": (recipe((1, 12), (1, 24), LARGEST), "cost", "none", "cost of a batch is"),
    "too large": (recipe((2, 36), (64, 512)), "cover", "none", "a profile reaches 64 x 512; no batch of the service is larger"),
    "another day": (recipe((2, 36), (15, 128)), "cover", "partial", "16 x 1 is not"),
}


@pytest.mark.parametrize("name", RECIPES)
def test_mistake_in_the_recipe_is_named(folder, name):
    made, task, tier, words = RECIPES[name]
    made.save(folder / RECIPE)
    examined = examine(folder, task)
    assert tiers(examined) == {task: tier} and words in said(examined, task), said(examined, task)


TEXTS = {
    "int8": ("", 'precision = "int8"\n', "compared in fp32"),
    "no mask": ("mask =", "musk =", "expected tokens (N, S, 32) and mask (N, S)"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_mistake_in_the_text_of_the_recipe(folder, name):
    old, new, words = TEXTS[name]
    text = (folder / RECIPE).read_text()
    (folder / RECIPE).write_text(text.replace(old, new) if old else new + text)
    for task in ("cover", "cost"):
        examined = examine(folder, task)
        assert examined.points == 0 and words in said(examined, task), said(examined, task)


@pytest.mark.parametrize("name", MADE["mistakes"])
def test_mistake_in_the_functions_is_named(folder, name):
    check_mistake(LAB, folder, mistakes(MADE["mistakes"])[name], Examiner(seed=1))


def test_boxes_that_are_the_same_for_every_traffic_have_none(folder):
    """Cheat: the boxes that are right for yesterday, whatever the function is asked."""
    (folder / SEARCH).write_text(f"def cheapest(latency, counts):\n    return {[list(box) for box in best()]}\n")
    assert tiers(examine(folder, "search")) == {"search": "none"}


def test_a_friends_recipe_is_not_the_cheapest_under_another_id(folder):
    friends = [best(f"friend {number}") for number in range(8)]
    full = 0
    for boxes in friends:
        recipe(*boxes).save(folder / RECIPE)
        full += tiers(examine(folder, "cost"))["cost"] == "full"
    assert full <= 3


def test_without_an_id_an_instructor_decides(folder):
    submission.write(folder / FILE, "")
    (outcome,) = examine(folder, "cost").outcomes
    assert outcome.tier != "none" or outcome.code == NOT_EXAMINED


# ---- the pieces


def test_the_numbers_in_the_bundle_are_the_references():
    for seed in range(0, checks.TRACES, 4):
        latency, counts = checks.trace(seed)
        assert checks.price(reference.cheapest(latency, counts), latency, counts) == pytest.approx(checks.LEAST[seed], rel=1e-5)


def test_the_bill_of_a_small_example():
    counts = np.zeros(LARGEST, int)
    counts[0, 9], counts[3, 19], counts[15, 127] = 6, 3, 1  # 1 x 10, 4 x 20, 16 x 128
    shares, padding = checks.bill([((1, 1), (2, 16)), ((1, 1), (4, 32))], counts)
    computed, text = 6 * 2 * 16 + 3 * 4 * 32, 6 * 10 + 3 * 80
    assert shares == [0.6, 0.3] and padding == pytest.approx(1 - text / computed)


def test_padding_does_not_change_an_answer(tmp_path):
    LAB.write_model(tmp_path / "model.onnx")
    graph = onnx.load(tmp_path / "model.onnx").graph
    assert [one.name for one in graph.input] == ["tokens", "mask"] and [one.name for one in graph.output] == ["logits"]
    engine = load(build(tmp_path / "model.onnx", recipe(LARGEST), backend="onnxruntime"))
    rng = np.random.default_rng(0)
    feeds = given.batch(rng, (3, 21))
    padded = {"tokens": rng.random((16, 128, 32), dtype=np.float32), "mask": np.zeros((16, 128), np.float32)}
    padded["tokens"][:3, :21], padded["mask"][:3, :21] = feeds["tokens"], 1
    padded["mask"][3:, 0] = 1  # a text of nothing would divide by zero
    alone, together = engine.infer(feeds)["logits"], engine.infer(padded)["logits"][:3]
    np.testing.assert_allclose(together, alone, rtol=1e-3, atol=1e-3)


def test_traffic_keeps_the_contract_and_is_bursty():
    for seed in range(4):
        day = given.one_day(Habits.drawn(np.random.default_rng(seed)), np.random.default_rng(seed), minutes=2)
        assert day.batch.min() >= 1 and day.batch.max() <= 16 and day.length.min() >= 1 and day.length.max() <= 128
        per_second = np.bincount(day.sent_s.astype(int), weights=day.batch)
        assert (np.diff(day.sent_s) > 0).all() and per_second.var() > 5 * per_second.mean(), "Poisson would have them equal"


def test_interpolation_goes_through_what_was_measured():
    known = {(b, s): float(b * 3 + s) for b in (1, 8, 16) for s in (4, 64, 128)}
    everywhere = given.interpolated(known)
    assert all(everywhere[b - 1, s - 1] == pytest.approx(value) for (b, s), value in known.items())
    assert everywhere[3, 31] == pytest.approx(4 * 3 + 32), "bilinear is exact for a plane"


def latencies(cost: float) -> dict[str, np.ndarray]:
    noise = np.random.default_rng(0).normal(1, 0.1, (4, 60))
    return dict(zip(("eager", "one profile", "reference", "yours"), noise * np.array([[200], [40], [30], [cost]]), strict=True))


@pytest.mark.parametrize(("cost", "met"), [(30.0, True), (32.0, None), (38.0, False)])
def test_the_cost_of_a_batch_is_compared_by_its_interval(cost, met):
    criterion = list(checks.race(latencies(cost)))[-1]
    middle, low, high = (float(number) for number in re.findall(r"[\d.]+", criterion.found))
    most = float(criterion.bound.split()[2])
    assert low <= middle <= high and criterion.met is met
    assert (high <= most, low <= most) == {True: (True, True), None: (False, True), False: (False, False)}[met]


def test_without_the_reference_only_the_comparison_with_it_is_open():
    alone = {name: times for name, times in latencies(20.0).items() if name != "reference"}
    found = LAB.decided("cost", list(checks.race(alone)))
    assert found.open and found.code == NO_REFERENCE and found.passed
    slow = {**alone, "yours": alone["one profile"]}
    lost = LAB.decided("cost", list(checks.race(slow)))
    assert lost.tier == "none" and "speed over one profile is" in lost.message


def test_an_engine_with_other_answers_has_no_cost():
    with pytest.raises(EngineError, match="are not PyTorch's"):
        checks._check_answers((1, 1), {"logits": np.zeros((1, 10))}, {"logits": np.ones((1, 10))})
