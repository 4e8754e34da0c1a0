"""Lab 01 against its reference, mistakes that learners make, and cheats for its metric."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from torch import nn

from course_lib import labs
from course_lib.cli import console
from course_lib.cli.checked_folder import points_of
from course_lib.labs import Examination, Examiner
from course_lib.models import classifier, export_onnx
from course_lib.recipe import Profile, Recipe
from tests.labs.quick import Quick, tiers

LAB = labs.find("lab01")
EXAMINER, QUICK = Examiner(measure_s=20), Quick(measure_s=1)


def recipe(low: int = 1, high: int = 32, best: int | None = None, **options) -> Recipe:
    sizes = {"min": low, "opt": low if best is None else best, "max": high}
    return Recipe(profiles=[Profile(image={bound: (size, 1, 32, 32) for bound, size in sizes.items()})], **options)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("reference") / "model.onnx"
    export_onnx(classifier("wide"), path)
    return path


@pytest.fixture
def submission(tmp_path, model):
    """Examine a submission that is right except for what is given."""

    def examine(*, network: onnx.ModelProto | None = None, text: str | None = None, only: str | None = None) -> Examination:
        data = network.SerializeToString() if network else model.read_bytes()
        (tmp_path / "model.onnx").write_bytes(data)
        (tmp_path / "recipe.toml").write_text(recipe().dumps() if text is None else text)
        return LAB.examine(tmp_path, QUICK, only=only)

    return examine


def hints(examined: Examination) -> str:
    return " ".join(outcome.hint for outcome in examined.outcomes)


@pytest.mark.slow
def test_reference_has_full_marks(tmp_path):
    LAB.write_reference(tmp_path)
    examined = LAB.examine(tmp_path, EXAMINER)
    assert tiers(examined) == {"profile": "full", "accuracy": "full", "speed": "full"}, examined.outcomes
    assert examined.points == examined.max_points == 10
    assert examined.comparison.speedups["yours"].median >= 1.25  # a margin over what full points need; 1.34 on two loaded cores
    assert examined.comparison.ratio("reference", "yours").half_width <= 0.07


@pytest.mark.parametrize(("high", "tier"), [(31, "partial"), (8, "none")])
def test_profile_that_ends_too_early(submission, high, tier):
    examined = submission(text=recipe(high=high).dumps(), only="profile")
    assert tiers(examined) == {"profile": tier}
    assert f"Batch {high + 1} is rejected: your profile covers 1 to {high}" in examined.outcomes[0].message
    assert "[min, max]" in hints(examined)


def test_profile_that_starts_too_late_still_runs_what_it_covers(submission):
    assert tiers(submission(text=recipe(low=8).dumps(), only="accuracy")) == {"accuracy": "full"}
    examined = submission(text=recipe(low=8).dumps(), only="profile")
    assert tiers(examined) == {"profile": "partial"} and "Batch 1 is rejected" in examined.outcomes[0].message


def test_several_profiles_may_share_the_range(submission):
    both = Recipe(profiles=(*recipe(1, 8).profiles, *recipe(9, 32).profiles))
    assert tiers(submission(text=both.dumps(), only="profile")) == {"profile": "full"}


@pytest.mark.parametrize("best", [32])
def test_mistake_a_profile_that_is_tuned_for_another_batch(submission, best):
    examined = submission(text=recipe(best=best).dumps(), only="profile")
    assert tiers(examined) == {"profile": "partial"} and examined.points == 1.5
    assert f"tuned batch is {best}" in examined.outcomes[0].message and "Expected: 1." in examined.outcomes[0].message
    assert "send most often" in hints(examined)


ONE_ALONE, OTHERS, ALL = recipe(1, 1).profiles, recipe(2, 32, 4).profiles, recipe(1, 32, 8).profiles


@pytest.mark.parametrize(
    ("profiles", "tier"),
    [
        ((*ONE_ALONE, *OTHERS), "full"),
        ((*OTHERS, *ONE_ALONE), "full"),
        ((*ONE_ALONE, *ALL), "full"),
        ((*ALL, *ONE_ALONE), "partial"),  # the first one takes every batch
    ],
)
def test_the_profile_that_takes_one_image_is_tuned_for_it(submission, profiles, tier):
    assert tiers(submission(text=Recipe(profiles=profiles).dumps(), only="profile")) == {"profile": tier}


def test_no_profile_is_no_engine(submission):
    examined = submission(text="")
    assert set(tiers(examined).values()) == {"none"}
    assert "no profile" in examined.outcomes[0].message
    assert "min, opt and max" in hints(examined)


def test_fixed_batch_is_no_engine_for_the_service(submission):
    examined = submission(network=export_onnx(classifier("wide"), dynamic_batch=False, batch=1))
    assert set(tiers(examined).values()) == {"none"}
    assert "always 1" in examined.outcomes[0].message
    assert "is fixed in the graph" in hints(examined) and "is dynamic" not in hints(examined)


def test_a_reason_that_several_tasks_share_is_printed_once(submission, capsys):
    fixed_batch = submission(network=export_onnx(classifier("wide"), dynamic_batch=False, batch=1))
    console.outcomes(LAB, fixed_batch, points_of(LAB, fixed_batch))
    shown = capsys.readouterr().out
    assert shown.count("always 1") == shown.count("Hint:") == 1
    assert all(task.title in shown for task in LAB.tasks)
    one_profile = submission(text=recipe(low=8).dumps(), only="profile")
    console.outcomes(LAB, one_profile, points_of(LAB, one_profile))
    assert capsys.readouterr().out.count("Batch 1 is rejected") == 1


def test_promised_half_precision_on_a_float_graph(submission):
    """The label alone makes nothing faster: an FP32 engine that says FP16 scores nothing."""
    examined = submission(text=recipe(precision="fp16").dumps())
    assert set(tiers(examined).values()) == {"none"}
    assert "none of" in examined.outcomes[0].message
    assert "number types" in hints(examined)


@pytest.mark.slow
def test_half_precision_in_the_graph_is_accurate(submission):
    half = export_onnx(classifier("wide"), dtype="fp16")
    examined = submission(network=half, text=recipe(precision="fp16").dumps(), only="accuracy")
    assert tiers(examined) == {"profile": "full", "accuracy": "full"}


def test_untrained_network_has_neither_accuracy_nor_speed(submission):
    examined = submission(network=export_onnx(classifier("wide", pretrained=False)))
    assert tiers(examined) == {"profile": "full", "accuracy": "none", "speed": "none"}
    assert "same network" in hints(examined)


def test_smaller_network_of_the_same_accuracy_scores_nothing(submission):
    """A cheat: the small classifier gets as many digits right and is several times as fast, but it is not the given network."""
    examined = submission(network=export_onnx(classifier("small")))
    assert tiers(examined) == {"profile": "full", "accuracy": "none", "speed": "none"}
    assert examined.figures["accuracy"] > 0.98


class Around(nn.Module):
    """The given network, and what is done with it."""

    def __init__(self, around):
        super().__init__()
        self.network, self.around = classifier("wide"), around

    def forward(self, image):
        return self.around(self.network, image)

    def signature(self):
        return self.network.signature()


def three_times(network, image):
    """The right answers with three times the work."""
    once, again, more = (network(image * scale) for scale in (1.0, 1.001, 0.999))
    return once + 0.001 * (again - more)


@pytest.mark.slow
def test_slow_engine_loses_the_points_for_speed(submission):
    examined = submission(network=export_onnx(Around(three_times)))
    assert tiers(examined) == {"profile": "full", "accuracy": "full", "speed": "none"}
    assert "Measure" in hints(examined)


def test_engine_that_is_right_at_batch_1_only(submission):
    """What a test at batch 1 never sees."""
    network = Around(lambda network, image: network(image)[:1] + 0 * network(image))
    assert tiers(submission(network=export_onnx(network), only="accuracy"))["accuracy"] == "none"


def test_an_input_of_another_name_is_named(submission, model):
    """The recipe's key was renamed, too, and "batch 1 is rejected" led nowhere."""
    network = onnx.load(model)
    network.graph.input[0].name = "x"
    for node in network.graph.node:
        node.input[:] = ["x" if name == "image" else name for name in node.input]
    found = submission(network=network, text=recipe().dumps().replace("image", "x"), only="profile")
    assert "the engine's input is x, expected one called image: name it in the export" in found.outcomes[0].message
