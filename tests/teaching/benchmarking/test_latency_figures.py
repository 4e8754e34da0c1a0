"""What the figures of latencies say, on series whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest

from course_lib import style
from course_lib.benchmark import Interval, Measurement
from course_lib.teaching.benchmarking.figures import (
    batch_sweep,
    distribution,
    draw_coverage,
)
from course_lib.teaching.benchmarking.rotation import caches_mib, draw_rotation


def labels(axes):
    return [text.get_text() for text in axes.texts]


def test_the_distribution_marks_what_was_measured():
    values = np.concatenate([np.full(198, 1.0), [5.0, 11.0]])
    figure = distribution(Measurement(values), "t")
    assert labels(figure.axes[0]) == ["median 1.00 ms", "p99 1.04 ms", "mean 1.07 ms", "slowest 11.00 ms"]
    assert sum(patch.get_height() for patch in figure.axes[0].patches) == 200


def test_a_99th_percentile_of_99_calls_is_rejected():
    with pytest.raises(ValueError, match="at least 100 calls, got 99"):
        distribution(Measurement(np.ones(99)), "t")


def test_the_sweep_names_the_batch_with_the_highest_throughput():
    figure = batch_sweep({size: Measurement(np.full(10, ms)) for size, ms in ((1, 2.0), (8, 4.0), (16, 10.0))})
    assert figure.get_suptitle() == "Batch 8: 4.0 times the throughput of batch 1, 2.0 times the latency"


def test_coverage_counts_all_and_draws_some():
    intervals = [Interval(1.0, 0.9, 1.05)] * 2 + [Interval(1.1, 1.05, 1.2)] * 3
    figure = draw_coverage(intervals, 1.1, shown=4)
    assert figure.axes[0].get_title().startswith("3 of 5 intervals")
    colors = [line.get_color() for line in figure.axes[0].lines[:4]]
    assert colors == [style.color(1)] * 2 + [style.color(0)] * 2


def cache(folder, index, kind, level, size):
    place = folder / f"index{index}"
    place.mkdir()
    for name, text in (("type", kind), ("level", level), ("size", size)):
        (place / name).write_text(f"{text}\n")


def test_the_caches_that_hold_data(tmp_path):
    cache(tmp_path, 0, "Data", "1", "48K")
    cache(tmp_path, 1, "Instruction", "1", "32K")
    cache(tmp_path, 2, "Unified", "2", "2M")
    cache(tmp_path, 3, "Unified", "3", "unknown")
    assert caches_mib(tmp_path) == {"L1": 48 / 1024, "L2": 2.0}


def test_the_figure_says_both_ends():
    figure = draw_rotation({0.25: 7.0, 64: 28.0}, {"L1": 0.03, "L2": 1.0})
    assert figure.axes[0].get_title() == "The same work: 7 us on one repeated input, 28 us on inputs from a large pool"
    assert [text.get_text() for text in figure.axes[0].texts] == ["L2: 1 MiB"]  # L1 lies outside
    assert style.png(figure).startswith(b"\x89PNG")
