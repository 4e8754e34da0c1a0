"""The intervals are right: against an independent bootstrap, and by how often they hold the truth."""

from __future__ import annotations

import time

import numpy as np
import pytest

from course_lib.benchmark import Interval, Measurement, measure, speedup
from course_lib.benchmark.statistics import median_interval


def _independent(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return 4 * rng.lognormal(0, 0.1, n), 2 * rng.lognormal(0, 0.1, n)


def test_the_median_is_that_of_the_paired_ratios() -> None:
    baseline, candidate = np.arange(10, 21) * 2.0, np.arange(10, 21) * 1.0
    assert speedup(baseline, candidate) == Interval(2.0, 2.0, 2.0), "drift that hits both cancels"
    baseline, candidate = _independent(101, 0)
    assert speedup(baseline, candidate).median == np.median(baseline / candidate)


@pytest.mark.parametrize("level", [0.8, 0.95])
@pytest.mark.parametrize("n", [100, 400, 1600])
def test_independent_pairs_get_the_interval_of_scipys_bootstrap(n: int, level: float) -> None:
    from scipy.stats import bootstrap

    lows, highs, widths = [], [], []
    for seed in range(8):
        baseline, candidate = _independent(n, seed)
        ours = speedup(baseline, candidate, level=level, seed=seed)
        theirs = bootstrap(
            (baseline / candidate,), np.median, n_resamples=1000, confidence_level=level, method="percentile", rng=seed
        ).confidence_interval
        width = theirs.high - theirs.low
        lows.append((ours.low - theirs.low) / width)
        highs.append((ours.high - theirs.high) / width)
        widths.append((ours.high - ours.low) / width)
    assert abs(np.mean(lows)) < 0.15 and abs(np.mean(highs)) < 0.15
    assert 0.8 < np.mean(widths) < 1.2


def _coverage(correlation: float, n: int, runs: int) -> float:
    """Share of synthetic sessions whose interval holds the true ratio, with noise that comes in stretches."""
    from scipy.signal import lfilter

    rng, truth = np.random.default_rng(1), 2.0
    held = 0
    for run in range(runs):
        shocks = rng.standard_normal(n + 200)
        noise = lfilter([1.0], [1.0, -correlation], shocks)[200:] * np.sqrt(1 - correlation**2)
        candidate = rng.lognormal(0, 0.05, n)
        interval = speedup(truth * candidate * np.exp(0.1 * noise), candidate, seed=run)
        held += interval.low <= truth <= interval.high
    return held / runs


@pytest.mark.parametrize("correlation", [pytest.param(0.0, marks=pytest.mark.slow), 0.7])
def test_95_percent_intervals_hold_the_truth_in_spite_of_correlated_noise(correlation: float) -> None:
    """About 90 % and more: 200 runs know the share to within 0.02, and the bound leaves twice that."""
    assert _coverage(correlation, n=400, runs=200) >= 0.86


def test_drift_that_hits_both_leaves_the_interval_narrow() -> None:
    rng = np.random.default_rng(0)
    drift = np.linspace(1, 5, 200)
    interval = speedup(drift * 3 * rng.lognormal(0, 0.01, 200), drift * rng.lognormal(0, 0.01, 200), seed=0)
    assert abs(interval.median - 3) < 0.03 and interval.half_width < 0.01


@pytest.mark.parametrize(
    ("baseline", "candidate", "words"),
    [
        (np.ones(9), np.ones(9), ["10", "(9,)"]),
        (np.ones(20), np.ones(21), ["same length", "(20,) and (21,)"]),
        (np.ones((20, 2)), np.ones((20, 2)), ["(20, 2)"]),
        (np.zeros(20), np.ones(20), ["0 ms", "clock"]),
        (np.ones(20), np.full(20, -1.0), ["0 ms", "clock"]),
    ],
    ids=["too few", "lengths differ", "two dimensions", "zero", "negative"],
)
def test_what_cannot_be_compared(baseline: np.ndarray, candidate: np.ndarray, words: list[str]) -> None:
    with pytest.raises(ValueError) as raised:
        speedup(baseline, candidate)
    assert [word for word in words if word not in str(raised.value)] == []


def test_an_interval_says_on_which_side_of_a_threshold_it_lies() -> None:
    interval = Interval(2.0, 1.8, 2.4)
    assert interval.excludes(1.7) and interval.excludes(2.5)
    assert not any(interval.excludes(threshold) for threshold in (1.8, 2.0, 2.4))
    assert interval.half_width == pytest.approx(0.15)
    assert str(interval) == "2.00x [1.80-2.40]"


def test_a_measurement_is_summed_up_by_median_and_percentiles() -> None:
    measured = Measurement(np.arange(1.0, 102.0))
    assert measured.median_ms == 51 and measured.percentile_ms(99) == 100


def test_measure_times_what_it_calls() -> None:
    calls: list[float] = []

    def call() -> None:
        calls.append(time.perf_counter())
        time.sleep(0.002)

    started = time.perf_counter()
    measured = measure(call, seconds=0.2, warmup=3)
    assert 0.2 <= time.perf_counter() - started < 30
    assert len(calls) == 3 + len(measured.latencies_ms) and (measured.latencies_ms >= 2).all()
    assert len(measure(lambda: None, seconds=0).latencies_ms) == 10, "never fewer than ten"


def test_the_interval_of_one_series_holds_its_median_and_narrows() -> None:
    widths = {}
    for n in (100, 3000):
        series = [np.random.default_rng(seed).lognormal(0, 0.1, n) for seed in range(60)]
        intervals = [median_interval(one, seed=0) for one in series]
        assert all(found.median == np.median(one) for found, one in zip(intervals, series, strict=True))
        assert np.mean([found.low <= 1 <= found.high for found in intervals]) > 0.8
        widths[n] = np.mean([found.high - found.low for found in intervals])
    assert widths[3000] < widths[100] / 3
    with pytest.raises(ValueError, match=">= 10"):
        median_interval(np.ones(9))
