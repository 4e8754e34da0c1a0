"""Lab 05 against its reference, other right answers, mistakes that learners make, and cheats for its metrics."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from course_lib import labs
from course_lib.errors import EngineError
from course_lib.labs import withheld
from course_lib.labs.framework.criteria import holds
from course_lib.labs.lab05_calibration import checks, given, reference
from course_lib.labs.lab05_calibration.checks import CalibrationWork, Quality
from course_lib.labs.lab05_calibration.histograms import questions
from course_lib.precision import (
    EntropyCalibrator,
    MinMaxCalibrator,
    PercentileCalibrator,
    insert_qdq,
)
from course_lib.recipe import Recipe
from tests.labs.quick import Quick, check_solved, examined, tiers
from tests.labs.submissions import lab05 as made

LAB = labs.find("lab05")


@pytest.fixture
def few(monkeypatch) -> None:
    """Fewer images and batch sizes, no lowered copy, and no race: the judge's test has them."""
    monkeypatch.setattr(checks, "FRESH_IMAGES", 128)
    monkeypatch.setattr(checks, "check_every_size", lambda *_: None)
    monkeypatch.setattr(checks.onnx_model, "wants_lowering", lambda examiner: False)
    monkeypatch.setattr(checks, "race", raced)


def raced(subjects, *_: object, **__: object) -> SimpleNamespace:
    """Twice as fast as PyTorch, and as fast as the reference."""
    latencies = {name: np.full(100, 2.0 if name == "eager" else 1.0) for name in subjects}
    return SimpleNamespace(latencies=lambda: latencies)


def outcome(folder, task):
    return examined(LAB, folder, task, Quick(seed=4, measure_s=3))


# ---- whole submissions


def test_the_reference_has_full_marks(tmp_path, few):
    LAB.write_reference(tmp_path)
    examined = LAB.examine(tmp_path, Quick(seed=4, measure_s=1))
    check_solved(LAB, examined)
    assert 39 <= examined.figures["sqnr_db"] <= 43


def test_without_the_reference_only_the_speed_is_open(tmp_path, monkeypatch, few):
    made.write_files(tmp_path, made.quantized(9, 10))
    monkeypatch.setitem(sys.modules, reference.__name__, withheld)
    monkeypatch.setattr(checks, "reference", withheld)
    found = LAB.examine(tmp_path, Quick(seed=5, measure_s=1))
    assert tiers(found) == {"calibrator": "full", "sqnr": "full", "kernels": "full", "speed": "inconclusive"}, found.outcomes


# ---- calibrators


@pytest.mark.parametrize("name", made.RIGHT)
def test_right_calibrators_have_full_marks(tmp_path, name):
    (tmp_path / "calibrator.py").write_text(made.RIGHT[name])
    found = outcome(tmp_path, "calibrator")
    assert (found.tier, found.points, found.hint) == ("full", 2, ""), found


@pytest.mark.parametrize("name", made.WRONG)
def test_a_mistake_in_the_calibrator_is_named(tmp_path, name):
    source, tier, words = made.WRONG[name]
    (tmp_path / "calibrator.py").write_text(source)
    found = outcome(tmp_path, "calibrator")
    assert found.tier == tier and words in f"{found.message} {found.hint}" and found.hint, found


@pytest.mark.parametrize("seed", range(3))
def test_every_histogram_separates_right_from_wrong(seed):
    """The library's own calibrators answer all questions; thresholds by another rule, or a bin beside, do not."""
    asked = questions(np.random.default_rng(seed))
    assert sorted(question.clean for question in asked) == [False] * 5 + [True] * 3
    for question in asked:
        histogram = question.histogram
        assert question.bins_off(PercentileCalibrator(question.percent).threshold(histogram)) == 0
        edge = question.border() * histogram.bin_width
        assert [round(question.bins_off(edge + n * histogram.bin_width)) for n in (-3, -1, 0, 2)] == [-3, -1, 0, 2]
    for rule in (MinMaxCalibrator(), EntropyCalibrator()):
        assert any(one.clean and one.bins_off(rule.threshold(one.histogram)) for one in asked), rule


# ---- ranges


def clean(rule):
    return lambda: reference.observed()[1].ranges(rule)


def all_scans(rule):
    return lambda: reference.observed(clean=False)[1].ranges(rule)


RANGES = {  # ranges, tier, words of the hint
    "entropy without the faulty scans": (clean(EntropyCalibrator()), "full", ""),
    "percentile 99.9": (all_scans(PercentileCalibrator(99.9)), "partial", "loses by clipping"),
    "min-max": (all_scans(MinMaxCalibrator()), "none", "steps are too coarse"),
}


@pytest.mark.parametrize("name", RANGES)
def test_ranges(tmp_path, few, monkeypatch, name):
    ranges, tier, words = RANGES[name]
    monkeypatch.setattr(checks, "_layers", lambda work: iter((holds("INT8", True),)))  # nothing is built
    monkeypatch.setattr(CalibrationWork, "plan", None)
    made.write_files(tmp_path, insert_qdq(made.network(), ranges()))
    found = outcome(tmp_path, "sqnr")
    assert found.tier == tier and words in found.hint and bool(found.hint) == (tier != "full"), found


def test_wrong_answers_at_one_batch_size_cost_the_task(tmp_path, few, monkeypatch):
    def wrong(*_):
        raise EngineError("a batch of 17 is answered with 3 dB SQNR")

    monkeypatch.setattr(checks, "check_every_size", wrong)
    made.write_files(tmp_path)
    found = {one.task.id: one for one in LAB.examine(tmp_path, Quick(seed=4)).outcomes}
    assert {task: one.tier for task, one in found.items()} == {
        "calibrator": "full", "sqnr": "none", "kernels": "full", "speed": "none",
    }  # fmt: skip
    assert "a batch of 17" in found["sqnr"].message and "a batch of 17" in found["speed"].message


def test_margins(monkeypatch):
    """What the bounds say about figures that lie between two of the rules above, and about answers that are not numbers."""
    monkeypatch.setattr(checks, "_layers", lambda work: iter((holds("INT8", True),)))
    monkeypatch.setattr(checks, "check_every_size", lambda *_: None)

    def tier(db, right, spread=1.0):
        work = CalibrationWork(LAB, None, Quick())
        work.results |= {"quality": Quality(db, 40, right, 99, spread), "engines": (None, None), "fresh": given}
        monkeypatch.setattr(given, "images", None, raising=False)
        return LAB.decided("sqnr", list(checks.sqnr(work)))

    expected = ["full", "partial", "partial", "none"]
    assert [tier(db, 99).tier for db in (36.1, 35.9, 27.6, 27.4)] == expected
    assert [tier(40, right).tier for right in (97.1, 96.9, 95.1, 94.9)] == expected
    clipped = CalibrationWork(LAB, None, Quick())  # as the course's own calibrators over all scans
    clipped.results |= {"quality": Quality(34, 40, 99, 99, 1.0), "engines": (None, None), "fresh": given}
    assert not clipped.right, "its speed is not measured"
    far = tier(60, 99)
    assert (far.tier, far.points, far.code) == ("inconclusive", 0, "unusual")
    assert "NaN" in tier(-120, 10, 0.0).hint


# ---- layers


@pytest.mark.parametrize("name", made.MODELS)
def test_models_by_their_layers(tmp_path, few, name):
    model, wanted, words = made.MODELS[name]
    made.write_files(tmp_path, model())
    found = {one.task.id: one for one in LAB.examine(tmp_path, Quick(seed=4, measure_s=1)).outcomes}
    assert (found["sqnr"].tier, found["kernels"].tier) == wanted, found
    assert words in found["kernels"].message + found["kernels"].hint, found
    if wanted[0] == "none":
        assert found["speed"].points == 0


def test_recorded_numbers_are_those_of_the_reference(tmp_path, monkeypatch):
    recorded = json.loads((checks.Path(checks.__file__).parent / "expected.json").read_text())
    for builder, numbers in recorded.items():
        monkeypatch.setattr(CalibrationWork, "expected", None)
        with CalibrationWork(LAB, tmp_path, Quick(builder=builder)) as work:
            assert work.network == numbers


def test_a_float_engine_is_not_int8_by_its_label(tmp_path):
    made.write_files(tmp_path, made.network(), reference.recipe())
    for task in ("sqnr", "kernels", "speed"):
        found = outcome(tmp_path, task)
        assert found.tier == "none" and "none of" in found.message, found


def test_a_profile_that_leaves_batches_of_the_service_out_has_no_engine(tmp_path):
    shapes = {bound: (batch, 1, 32, 32) for bound, batch in (("min", 1), ("opt", 31), ("max", 31))}
    made.write_files(tmp_path, recipe=Recipe(precision="int8", profiles=[{"image": shapes}]))
    found = outcome(tmp_path, "sqnr")
    assert found.tier == "none" and "does not accept a batch of 32: the service sends 1 to 32" in found.message
    assert "`service` accepts batches from 1 to 32" in found.hint


def test_without_vnni_the_points_for_speed_follow_the_layers(tmp_path, few, monkeypatch):
    monkeypatch.setattr(checks, "lowering_helps", lambda: False)
    monkeypatch.setattr(checks.onnx_model, "wants_lowering", lambda examiner: True)
    made.write_files(tmp_path, made.quantized(0, 3))
    found = LAB.examine(tmp_path, Quick(seed=4))
    assert tiers(found) == {"calibrator": "full", "sqnr": "full", "kernels": "partial", "speed": "partial"}
    assert "no VNNI" in found.outcomes[-1].message and found.comparison is None


# ---- the recording


def test_recording_is_what_the_story_says():
    scans = given.calibration_scans()
    assert (scans.dtype, scans.shape) == (np.uint16, (1000, 1, 32, 32))
    overdriven, stuck, inverted = given.faulty_scans()
    highest = scans.reshape(1000, -1).max(1)
    assert sorted(np.flatnonzero(highest > 2 * given.FULL_INK)) == sorted((overdriven, stuck))
    ink = (scans / given.FULL_INK).reshape(1000, -1).mean(1)
    assert set(np.argsort(ink)[-3:]) == {overdriven, stuck, inverted}
    scans[:] = 0
    assert given.calibration_scans().any()
