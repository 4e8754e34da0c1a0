"""Lab 07 against its reference, mistakes that learners make, and cheats for its metric."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib import labs, style
from course_lib.benchmark import Comparison, Measurement
from course_lib.engines import build, load
from course_lib.errors import CourseError
from course_lib.labs import Examination, Examiner
from course_lib.labs.lab07_dynamic_shapes import account as lab07_account
from course_lib.labs.lab07_dynamic_shapes import figures as lab07_figures
from course_lib.labs.lab07_dynamic_shapes import service, traffic
from course_lib.labs.lab07_dynamic_shapes.judge import optimum
from course_lib.labs.lab07_dynamic_shapes.lab import FULL, DynamicShapes, _criteria, _recipe
from course_lib.labs.lab07_dynamic_shapes.latency import interpolated
from course_lib.labs.lab07_dynamic_shapes.service import Service, bill, profile, recipe
from course_lib.labs.lab07_dynamic_shapes.traffic import LARGEST
from course_lib.recipe import Recipe
from tests.labs.quick import tiers
from tests.labs.untouched import leave_untouched

LAB = labs.find("lab07")
assert isinstance(LAB, DynamicShapes)
YESTERDAY = traffic.yesterday().counts()
BEST = ((2, 36), (9, 96), LARGEST)  # the reference's boxes


class Modeled:
    """An engine that takes so long as its shape has tokens, give or take 2 %."""

    def __init__(self, faster: float = 1.0) -> None:
        self.faster, self.rng = faster, np.random.default_rng(0)

    def time_ms(self, feeds) -> float:
        batch, length = feeds["mask"].shape
        return (60 + batch * length) / 20 / self.faster * self.rng.normal(1, 0.02)


def modeled_race(self, model, examiner, recipe, plan, hidden):
    """The race of the lab, run by engines whose times are known."""
    best = service.recipe(*optimum.cheapest(optimum.by_tokens(), hidden))
    least = bill(best, hidden)
    services = {
        "eager": Service(Modeled(0.9), [LARGEST], [1.0]),
        "one profile": Service(Modeled(), [LARGEST], [1.0]),
        "reference": Service(Modeled(), service.boxes(best), least.shares),
        "yours": Service(Modeled(), service.boxes(recipe), bill(recipe, hidden).shares),
    }
    feeds = service.batch(np.random.default_rng(0), (64, 512))
    latencies = {name: np.array([one.time_ms(feeds) for _ in range(30)]) for name, one in services.items()}
    return Comparison("eager", {name: Measurement(times) for name, times in latencies.items()}, {}, 0.0, "precise"), least


@pytest.fixture
def submission(tmp_path, monkeypatch):
    """Examine a recipe with a true account, timed by engines that are modeled; built by NVIDIA's compiler where a test asks for it."""
    monkeypatch.setattr(DynamicShapes, "_race", modeled_race)

    def examine(given: Recipe | str, *, account: object = None, only: str | None = None, built: bool = False) -> Examination:
        if not built:
            monkeypatch.setattr(Examiner, "build", lambda self, model, recipe: None)
        text = given if isinstance(given, str) else given.dumps()
        (tmp_path / "recipe.toml").write_text(text)
        if account is None:
            truth = bill(given, YESTERDAY) if isinstance(given, Recipe) else None
            account = {"shares": truth.shares, "padding": truth.padding} if truth else {}
        (tmp_path / "account.json").write_text(account if isinstance(account, str) else json.dumps(account))
        return LAB.examine(tmp_path, Examiner(seed=1), only=only)

    return examine


def said(examined: Examination, task: str) -> str:
    return next(f"{outcome.message} {outcome.hint}" for outcome in examined.outcomes if outcome.task.id == task)


# ---- the reference and other right answers


@pytest.mark.slow
def test_reference_has_full_marks(tmp_path):
    LAB.write_reference(tmp_path)
    examined = LAB.examine(tmp_path, Examiner(measure_s=12))
    assert tiers(examined) == {"cover": "full", "account": "full", "cost": "full"}, examined.outcomes
    assert examined.points == examined.max_points == 10
    assert 0.9 <= examined.figures["saving"] <= 1.1


def test_the_untouched_release_has_none(tmp_path):
    leave_untouched(LAB.name, tmp_path)
    examined = LAB.examine(tmp_path, Examiner())
    assert (examined.points, examined.max_points) == (0, 10), examined.outcomes


@pytest.mark.parametrize("boxes", [BEST, ((2, 32), (9, 104), LARGEST), ((3, 32), (8, 128), LARGEST)])
def test_more_than_one_choice_is_right(submission, boxes):
    assert tiers(submission(recipe(*boxes))) == {"cover": "full", "account": "full", "cost": "full"}


def test_profiles_side_by_side_are_as_good_as_nested_ones(submission):
    tiles = Recipe(profiles=(profile((16, 32)), profile((9, 128), (1, 33)), profile(LARGEST, (10, 33))))
    examined = submission(tiles, built=True)
    assert tiers(examined)["cover"] == "full" and tiers(examined)["account"] == "full"


# ---- mistakes


def test_mistake_one_profile_for_everything(submission):
    examined = submission(recipe(LARGEST))
    assert tiers(examined) == {"cover": "full", "account": "full", "cost": "none"}
    assert "cause most of the padding" in said(examined, "cost")


def test_mistake_the_largest_profile_first(submission):
    """It accepts everything, so the others never see a batch; the account that assumes the best fit is wrong as well."""
    right = bill(recipe(*BEST), YESTERDAY)
    wrong = {"shares": right.shares[::-1], "padding": right.padding}
    examined = submission(recipe(*BEST[::-1]), account=wrong)
    assert tiers(examined) == {"cover": "full", "account": "none", "cost": "none"}
    assert "first profile that accepts it" in said(examined, "account")


def test_mistake_only_the_most_frequent_shapes_are_spared(submission):
    examined = submission(recipe((1, 12), (1, 24), LARGEST))
    assert tiers(examined)["cost"] == "none"
    assert "padding" in said(examined, "cost")


def test_half_of_the_way_is_worth_half(submission):
    examined = submission(recipe((4, 32), LARGEST))
    assert tiers(examined)["cost"] == "partial" and examined.points == 7.5


def test_mistake_a_gap_between_two_profiles(submission):
    examined = submission(Recipe(profiles=(profile((16, 32)), profile(LARGEST, (1, 40)))))
    assert tiers(examined) == {"cover": "none", "account": "full", "cost": "none"}
    assert "such as 1 x 33" in said(examined, "cover") and "the cost is not measured" in said(examined, "cost")


def test_an_account_of_an_empty_day_is_none(submission):
    examined = submission(Recipe(profiles=(profile((16, 512), (16, 512)),)))
    assert examined.points == 0 and "rejects 100 % of yesterday's batches" in said(examined, "account")


def test_the_share_of_a_single_profile_is_no_finding(submission):
    examined = submission(recipe(LARGEST), account={"shares": [1.0], "padding": 0.1}, only="account")
    assert tiers(examined) == {"account": "none"}


@pytest.mark.parametrize(
    ("boxes", "shares"),
    [
        ((LARGEST, LARGEST, LARGEST), [1.0, 0.0, 0.0]),
        (((1, 1), (1, 2), LARGEST), [0.0, 0.0, 1.0]),
        (((1, 2), (1, 3), LARGEST), [0.005, 0.005, 0.99]),
    ],
)
def test_shares_that_need_no_account_are_no_finding(submission, boxes, shares):
    """A cheat: one profile takes everything or nearly everything, so that the shares are known."""
    examined = submission(recipe(*boxes), account={"shares": shares, "padding": 0}, only="account")
    assert tiers(examined) == {"account": "none"} and "Not right yet: padding" in said(examined, "account")


def test_mistake_tuned_to_the_longest_of_yesterday(submission):
    """What yesterday did not hold comes today."""
    seen = np.argwhere(YESTERDAY).max(axis=0) + 1
    narrow = (int(seen[0]) - 1, int(seen[1]))
    examined = submission(recipe((2, 36), narrow))
    assert tiers(examined)["cover"] != "full" and tiers(examined)["cost"] == "none"
    assert "Which corner is left out?" in said(examined, "cover")


def test_mistake_four_profiles(submission):
    examined = submission(recipe((1, 16), *BEST))
    assert examined.points == 0 and "has 4 profiles; the service takes 1 to 3" in said(examined, "cover")


DIFFERING = {
    "a smaller mask": (("max = [16, 128] }", "max = [16, 64] }"), ("opt = [16, 128], max", "opt = [16, 64], max")),
    "more texts in the mask": (("max = [2, 36] }", "max = [64, 512] }"),),
    "more tokens than a machine has": (("max = [16, 128, 32]", "max = [1000000, 512, 32]"),),
    "another opt": (("opt = [9, 96],", "opt = [1, 96],"),),
    "another min": (("mask = { min = [1, 1]", "mask = { min = [1, 2]"),),
}


@pytest.mark.parametrize("name", DIFFERING)
def test_mistake_the_mask_has_other_bounds_than_the_tokens(submission, name):
    """It is also a cheat: what both inputs accept would be priced, while the engine is built for something else."""
    text = recipe(*BEST).dumps()
    for old, new in DIFFERING[name]:
        assert old in text, (old, text)
        text = text.replace(old, new)
    for only in (None, "cover", "account"):
        examined = submission(text, account={"shares": [0.5, 0.4, 0.1], "padding": 0.7}, only=only)
        first = examined.outcomes[0]
        assert examined.points == 0 and " for tokens and (" in first.message and "N and S agree" in first.hint, first


def test_mistake_the_mask_is_forgotten(submission):
    text = "\n".join(line for line in recipe(*BEST).dumps().splitlines() if not line.startswith("mask"))
    examined = submission(text, account={"shares": [0.5, 0.4, 0.1], "padding": 0.7}, built=True)
    assert examined.points == 0 and "names both inputs" in said(examined, "cover")


def test_mistake_padding_counted_in_batches(submission):
    right = bill(recipe(*BEST), YESTERDAY)
    examined = submission(recipe(*BEST), account={"shares": right.shares, "padding": 0.3}, only="account")
    assert tiers(examined) == {"account": "partial"} and "b * s of them are text" in said(examined, "account")


@pytest.mark.parametrize(
    ("account", "complaint"),
    [
        ("no JSON", "is not JSON"),
        ("[" * 4000, "is not JSON"),
        ("[]", "needs exactly the keys"),
        ({"shares": [1.0], "padding": 0.5}, "expected 3 numbers"),
        ('{"shares": [NaN, 0, 1], "padding": 0.5}', "expected 3 numbers"),
        ({"shares": [0.5, 0.5, 0], "padding": "much"}, "padding: expected a number"),
        ({"shares": [0.5, 0.5, 0], "padding": True}, "padding: expected a number"),
        ({"shares": [0.5, 0.5, 10**400], "padding": 0.5}, "expected 3 numbers"),
    ],
)
def test_an_account_that_is_none(submission, account, complaint):
    examined = submission(recipe(*BEST), account=account, only="account")
    assert tiers(examined) == {"account": "none"} and complaint in said(examined, "account")


@pytest.mark.parametrize(("claimed", "right"), [(0.9953, True), (1.0, False), (0.994, False)])
def test_where_nearly_all_is_padding_nearly_all_is_not_an_answer(claimed, right):
    """A box of 64 x 512 leaves half a percent of text, which everybody can name."""
    found = lab07_account.judge(lab07_account.Account((1.0,), claimed), service.Bill((1.0,), 0.0, 0.9953))
    assert found == {"shares": True, "padding": right}


def test_files_that_are_missing(tmp_path):
    assert all("recipe.toml is missing" in outcome.message for outcome in LAB.examine(tmp_path, Examiner()).outcomes)
    recipe(*BEST).save(tmp_path / "recipe.toml")
    assert "account.json is missing" in LAB.examine(tmp_path, Examiner(), only="account").outcomes[0].message


# ---- cheats


def test_cheat_profiles_that_hold_exactly_the_recorded_traffic(submission):
    """Without the contract's largest shape there is less to pad to, until another day comes."""
    longest = int(np.argwhere(YESTERDAY.sum(axis=0)).max()) + 1
    examined = submission(recipe((2, 36), (9, longest), (13, longest)))
    assert tiers(examined)["cost"] == "none" and "rejected" in said(examined, "cost")


@pytest.mark.parametrize("precision", ["int8", "fp16"])
def test_cheat_a_faster_type(submission, precision):
    examined = submission(f'precision = "{precision}"\n' + recipe(*BEST).dumps())
    assert examined.points == 0 and "compared in fp32" in said(examined, "cover")


def test_cheat_a_shape_larger_than_the_machine(submission):
    examined = submission(recipe((2, 36), (1 << 30, 1 << 30)))
    assert examined.points == 0 and "no batch is larger than 16 x 128" in said(examined, "cover")


@pytest.mark.parametrize("box", [(64, 512), (32, 512), (64, 129), (16, 513), (65, 1)])
def test_cheat_a_shape_that_takes_gigabytes(submission, box):
    examined = submission(recipe((2, 36), box))
    assert examined.points == 0 and "expected at most 8192 tokens" in said(examined, "cover")


@pytest.mark.parametrize("box", [(16, 512), (64, 128)])
def test_a_profile_may_hold_four_times_the_contract(tmp_path, box):
    recipe((2, 36), box).save(tmp_path / "recipe.toml")
    assert service.boxes(_recipe(tmp_path))[-1] == box


def test_cheat_inputs_that_the_network_does_not_have(submission):
    text = recipe(*BEST).dumps().replace("mask", "musk")
    assert submission(text, account={"shares": [1, 0, 0], "padding": 0}, built=True).points == 0


# ---- the pieces


def test_padding_does_not_change_an_answer(tmp_path):
    LAB.write_model(tmp_path / "model.onnx")
    engine = load(build(tmp_path / "model.onnx", recipe(LARGEST), backend="onnxruntime"))
    rng = np.random.default_rng(0)
    feeds = service.batch(rng, (3, 21))
    padded = {"tokens": rng.random((16, 128, 32), dtype=np.float32), "mask": np.zeros((16, 128), np.float32)}
    padded["tokens"][:3, :21], padded["mask"][:3, :21] = feeds["tokens"], 1
    padded["mask"][3:, 0] = 1  # a text of nothing would divide by zero
    alone, together = engine.infer(feeds)["logits"], engine.infer(padded)["logits"][:3]
    np.testing.assert_allclose(together, alone, rtol=1e-3, atol=1e-3)


def test_without_padding_it_is_the_encoder():
    from course_lib.labs.lab07_dynamic_shapes.network import masked_encoder
    from course_lib.models import encoder

    tokens = torch.rand(2, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(masked_encoder()(tokens, torch.ones(2, 32)), encoder()(tokens))


def test_the_exported_network_has_the_inputs_that_profiles_name(tmp_path):
    LAB.write_model(tmp_path / "model.onnx")
    graph = onnx.load(tmp_path / "model.onnx").graph
    assert [one.name for one in graph.input] == ["tokens", "mask"] and [one.name for one in graph.output] == ["logits"]


def test_traffic_keeps_the_contract_and_is_bursty_and_long_tailed():
    day = traffic.one_day(seed=3)
    assert day.batch.min() >= 1 and day.batch.max() <= 16 and day.length.min() >= 1 and day.length.max() <= 128
    assert (np.diff(day.sent_s) > 0).all()
    per_second = np.bincount(day.sent_s.astype(int), weights=day.batch)
    assert per_second.var() > 10 * per_second.mean(), "a Poisson process would have them equal"
    assert np.percentile(day.length, 99) > 5 * np.median(day.length)
    assert len(day) > 5000 and (day.counts() > 0).sum() > 300


def test_two_days_differ_and_one_seed_gives_one_day():
    assert (traffic.one_day(1).counts() == traffic.one_day(1).counts()).all()
    assert (traffic.one_day(None).counts() != traffic.one_day(None).counts()).any()


@given(st.integers(0, 2**31), st.floats(0, 500))
def test_no_other_choice_is_cheaper(seed, fixed):
    """Against pricing by routing every shape, one by one, on random choices."""
    rng = np.random.default_rng(seed)
    counts = rng.poisson(0.3, LARGEST) * rng.integers(0, 50, LARGEST)
    latency = optimum.by_tokens(fixed) * rng.uniform(1, 1.2)

    def cost(boxes):
        ordered = sorted(boxes, key=lambda box: latency[box[0] - 1, box[1] - 1])
        taken = bill(recipe(*ordered), counts)
        return sum(share * latency[b - 1, s - 1] for share, (b, s) in zip(taken.shares, ordered, strict=True))

    if counts.sum() == 0:
        return
    best = cost(optimum.cheapest(latency, counts))
    candidates = optimum.CANDIDATES
    for _ in range(20):
        i, j = rng.integers(0, len(candidates), 2)
        assert best <= cost([candidates[i], candidates[j], LARGEST]) * (1 + 1e-9)


def test_interpolation_goes_through_what_was_measured():
    known = {(b, s): float(b * 3 + s) for b in (1, 8, 16) for s in (4, 64, 128)}
    everywhere = interpolated(known)
    assert everywhere.shape == LARGEST
    for (b, s), value in known.items():
        assert everywhere[b - 1, s - 1] == pytest.approx(value)
    assert everywhere[3, 31] == pytest.approx(4 * 3 + 32), "bilinear is exact for a plane"
    assert everywhere[0, 0] == known[1, 4], "constant beyond the grid"


def test_the_first_profile_that_accepts_takes_a_batch():
    nested = recipe((2, 32), (8, 64), LARGEST)
    taken = service.routes(nested)
    assert (taken[:2, :32] == 0).all() and taken[2, 31] == 1 and taken[7, 64] == 2 and taken[15, 127] == 2
    assert service.boxes(nested) == [(2, 32), (8, 64), LARGEST]


def test_the_bill_of_a_small_example():
    counts = np.zeros(LARGEST, int)
    counts[0, 9], counts[3, 19], counts[15, 127] = 6, 3, 1  # 1 x 10, 4 x 20, 16 x 128
    paid = bill(recipe((2, 16), (4, 32)), counts)
    assert paid.shares == (0.6, 0.3) and paid.rejected == 0.1
    computed, text = 6 * 2 * 16 + 3 * 4 * 32, 6 * 10 + 3 * 80
    assert paid.padding == pytest.approx(1 - text / computed)


def test_the_bench_on_a_machine_where_profiles_cost_the_same(submission, monkeypatch):
    """Nothing to grade is said, not guessed."""
    monkeypatch.setattr(Modeled, "time_ms", lambda self, feeds: float(self.rng.normal(1, 0.01)))
    examined = submission(recipe(*BEST))
    assert tiers(examined)["cost"] == "inconclusive"
    assert examined.points == 5 and "too little to tell profiles apart" in said(examined, "cost")


def test_the_self_check_of_a_task_does_not_run_the_others(tmp_path, monkeypatch):
    LAB.write_reference(tmp_path)
    monkeypatch.setattr(DynamicShapes, "_race", None)
    assert tiers(LAB.examine(tmp_path, Examiner(), only="cover")) == {"cover": "full"}
    monkeypatch.setattr(Examiner, "build", None)
    assert tiers(LAB.examine(tmp_path, Examiner(), only="account")) == {"account": "full"}


@pytest.mark.slow
def test_an_engine_with_other_answers_has_no_cost(tmp_path, monkeypatch):
    """Nobody can hand one in here; a backend that computes wrongly would be found all the same."""
    LAB.write_reference(tmp_path)
    monkeypatch.setattr(DynamicShapes, "source", type(LAB.source)("course_lib.labs.lab07_dynamic_shapes.network:MaskedEncoder"))
    examined = LAB.examine(tmp_path, Examiner(), only="cost")
    assert tiers(examined)["cost"] == "none" and "are not PyTorch's" in said(examined, "cost")


def test_paths_are_not_kept(tmp_path: Path):
    """The lab writes the network beside nothing of the learner's."""
    LAB.write_reference(tmp_path)
    LAB.examine(tmp_path, Examiner(), only="cover")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["account.json", "recipe.toml"]


def test_every_figure_has_axes_units_and_a_takeaway():
    day = traffic.yesterday()
    figures = [
        lab07_figures.traffic(day),
        lab07_figures.latency(optimum.by_tokens()),
        lab07_figures.routed(YESTERDAY, BEST, "three boxes"),
    ]
    for figure in figures:
        assert style.png(figure).startswith(b"\x89PNG")
        assert all(axes.get_ylabel() and (axes.get_xlabel() or axes.get_label() == "<colorbar>") for axes in figure.axes)
        assert figure.get_suptitle() or figure.axes[0].get_title()


@pytest.mark.parametrize(
    "returned",
    [
        {"shares": [0.75, 0.25], "padding": 0.5},
        ((0.75, 0.25), 0.5),
        (np.array([0.75, 0.25], np.float32), np.float32(0.5)),
        {"shares": np.array([0.75, 0.25]), "padding": np.float64(0.5)},
    ],
)
def test_an_account_may_be_a_dictionary_or_a_pair(tmp_path, returned):
    written = lab07_account.write(tmp_path / "account.json", returned)
    assert written == lab07_account.read(tmp_path / "account.json", profiles=2) == lab07_account.Account((0.75, 0.25), 0.5)


@pytest.mark.parametrize(
    "returned", [None, 3, "ab", ({"shares": 1}, 2), {"shares": 0.5, "padding": 0.5}, (1, 2, 3), ([[1], [2]], "x")]
)
def test_other_accounts_are_rejected_in_one_line(tmp_path, returned):
    with pytest.raises(CourseError, match=r"account\(recipe\) has to return") as raised:
        lab07_account.write(tmp_path / "account.json", returned)
    assert "\n" not in str(raised.value) and not (tmp_path / "account.json").exists()


@pytest.mark.parametrize(("cost", "met"), [(30.0, True), (32.0, None), (38.0, False)])
def test_the_cost_of_a_batch_is_compared_by_its_interval(cost, met):
    """A learner read "not decided: 31.03 ms, at most 32.76"."""
    noise = np.random.default_rng(0).normal(1, 0.1, (4, 60))
    names = ("eager", "one profile", "reference", "yours")
    latencies = dict(zip(names, noise * np.array([[200], [40], [30], [cost]]), strict=True))
    criterion = _criteria(latencies, FULL)[0]
    middle, low, high = (float(number) for number in re.findall(r"[\d.]+", criterion.found))
    most = float(criterion.bound.split()[2])
    assert low <= middle <= high and criterion.met is met
    assert (high <= most, low <= most) == {True: (True, True), None: (False, True), False: (False, False)}[met]
