"""Calibrators against numpy, against brute force written another way, and against ONNX Runtime's on the same values."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from course_lib.errors import CourseError
from course_lib.precision import (
    EntropyCalibrator,
    Histogram,
    MinMaxCalibrator,
    MSECalibrator,
    PercentileCalibrator,
    SearchingCalibrator,
    StreamingHistogram,
    divergence,
    histogram_figure,
    kl_curve,
)
from course_lib.precision.calibration.calibrators import without_zeros

ALL = (MinMaxCalibrator(), PercentileCalibrator(99.9), EntropyCalibrator(), MSECalibrator())
SEARCHING = (EntropyCalibrator(), MSECalibrator())


def _histogram(values: np.ndarray, bins: int = 2048) -> Histogram:
    streaming = StreamingHistogram("x", bins)
    streaming.add(values.astype(np.float32))
    return streaming.result()


def _normal(n: int = 200_000, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 1, n).astype(np.float32)


def _laplace(n: int = 200_000, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).laplace(0, 1, n).astype(np.float32)


SHAPES = {
    "normal": _normal(),
    "laplace": _laplace(),
    "after a relu": np.maximum(_normal(seed=1), 0),
    "outlier": np.append(_normal(seed=2), 60).astype(np.float32),
    "uniform": np.random.default_rng(3).uniform(-1, 1, 50_000).astype(np.float32),
}


# --- what every calibrator owes -----------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=40)
@given(arrays(np.float32, st.integers(1, 200), elements=st.floats(-1e6, 1e6, width=32)))
def test_a_threshold_is_positive_at_most_the_largest_value_and_always_the_same(values: np.ndarray) -> None:
    histogram = _histogram(values, 256)
    for calibrator in ALL:
        threshold = calibrator.threshold(histogram)
        assert 0 <= threshold <= histogram.amax
        assert (threshold == 0) == (histogram.amax == 0)
        assert threshold == calibrator.threshold(histogram) == calibrator.threshold(_histogram(values[::-1], 256))


@pytest.mark.parametrize("calibrator", SEARCHING, ids=repr)
@pytest.mark.parametrize("name", SHAPES)
def test_the_threshold_is_the_lowest_point_of_the_curve(calibrator: SearchingCalibrator, name: str) -> None:
    histogram = _histogram(SHAPES[name])
    candidates, scores = calibrator.curve(histogram)
    assert candidates.shape == scores.shape and (np.diff(candidates) >= 0).all() and candidates[-1] == histogram.amax
    assert not np.isnan(scores).any() and (scores >= 0).all()
    # two candidates are equal where the largest value is a bin's lower border: one clips it, one does not
    assert scores[candidates == calibrator.threshold(histogram)].min() == scores.min()
    assert isinstance(calibrator, SearchingCalibrator) and not isinstance(PercentileCalibrator(), SearchingCalibrator)


# --- percentile ---------------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(arrays(np.float32, st.integers(1, 400), elements=st.floats(-100, 100, width=32)), st.floats(0.1, 100))
def test_percentile_is_numpys_within_a_bin(values: np.ndarray, percentile: float) -> None:
    histogram = _histogram(values)
    exact = np.percentile(np.abs(values), percentile, method="inverted_cdf")
    # numpy, too, rounds percentile * n: at a share that falls on a value it may name that value or the one after it
    near = np.percentile(np.abs(values), [max(percentile - 1e-9, 0), min(percentile + 1e-9, 100)], method="inverted_cdf")
    threshold = PercentileCalibrator(percentile).threshold(histogram)
    assert min(exact, near[0]) - 1e-6 <= threshold <= max(exact, near[1]) + histogram.bin_width


# --- entropy ------------------------------------------------------------------------------------------------------------


def _brute_force_kl(counts: list[float], kept: int, levels: int = 128) -> float:
    """Migacz's algorithm, value by value, over dictionaries: nothing shared with the implementation but the slides."""
    reference = {k: counts[k] for k in range(kept)}
    if not any(reference.values()):
        return math.inf
    reference[kept - 1] += sum(counts[kept:])
    members: dict[int, list[int]] = {}
    for k in range(kept):
        members.setdefault(math.floor(k * levels / kept), []).append(k)
    copy: dict[int, float] = {}
    for bins in members.values():
        busy = [k for k in bins if counts[k]]
        copy.update({k: math.fsum(counts[b] for b in bins) / len(busy) for k in busy})
    for k, weight in reference.items():
        if weight and k not in copy:
            copy[k] = 1e-4
    p_total, q_total = math.fsum(reference.values()), math.fsum(copy.values())
    return math.fsum(w / p_total * math.log(w / p_total * q_total / copy[k]) for k, w in reference.items() if w)


@settings(deadline=None, max_examples=25)
@given(arrays(np.float32, st.integers(2, 500), elements=st.floats(0, 10, width=32)), st.booleans())
def test_the_divergence_is_that_of_brute_force(values: np.ndarray, spread: bool) -> None:
    histogram = _histogram(values if spread else np.sqrt(values) / 3, 256)
    counts = without_zeros(histogram)
    _, scores = EntropyCalibrator().curve(histogram)
    assert len(scores) == len(counts) - 127
    for kept, score in enumerate(scores, 128):
        wanted = _brute_force_kl(list(counts), kept)
        assert score == pytest.approx(wanted, rel=1e-9, abs=1e-12), kept
        assert divergence(counts, kept) == pytest.approx(wanted, rel=1e-9, abs=1e-12), kept


# --- an outlier ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("factor", [20, 100])
def test_one_image_times_20_spoils_minmax_and_not_the_others(factor: int) -> None:
    """One of 500 images was stored in another unit."""
    images = np.abs(np.random.default_rng(4).normal(0, 1, (500, 400))).astype(np.float32)
    clean = images.max()
    images[123] *= factor
    histogram = _histogram(images)
    thresholds = {type(c).__name__: c.threshold(histogram) for c in (*ALL, PercentileCalibrator(99.7))}
    assert thresholds["MinMaxCalibrator"] > 0.5 * factor * clean  # so that a clean image is left 127 / (factor / 2) steps
    assert PercentileCalibrator(99.7).threshold(histogram) <= 1.01 * clean  # one image of 500 is 0.2 % of the values
    assert thresholds["EntropyCalibrator"] < 0.5 * thresholds["MinMaxCalibrator"]
    assert PercentileCalibrator(100).threshold(histogram) == thresholds["MinMaxCalibrator"]
    for bad in (0, -1, 100.1, math.nan):
        with pytest.raises(CourseError, match="percentile"):
            PercentileCalibrator(bad)
    for constant in (0.0, 1.0, 0.3, 1e-30):
        histogram = _histogram(np.append(np.zeros(5), np.full(10, constant)))
        assert {calibrator.threshold(histogram) for calibrator in ALL} == {np.float32(constant)}


# --- figures ------------------------------------------------------------------------------------------------------------


def test_figures_say_what_they_show() -> None:
    histogram = _histogram(SHAPES["outlier"])
    drawn = histogram_figure(histogram, {"min-max": histogram.amax, "99.9 %": PercentileCalibrator(99.9).threshold(histogram)})
    axes = drawn.axes[0]
    assert axes.get_yscale() == "log" and axes.get_xlabel() and axes.get_ylabel()
    assert axes.get_title().startswith("Clipping 0.") and "times finer" in axes.get_title()
    assert [text.get_text().split(":")[0] for text in axes.texts] == ["99.9 %", "min-max"]
    for calibrator in SEARCHING:
        axes = kl_curve(calibrator, histogram).axes[0]
        assert axes.get_ylabel() == calibrator.score_label and "Lowest at" in axes.get_title()
    for empty in (histogram_figure(histogram, {}), kl_curve(EntropyCalibrator(), _histogram(np.zeros(3)))):
        assert empty.axes[0].get_title()
