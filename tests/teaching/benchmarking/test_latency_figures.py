"""What the figures of latencies and intervals say, on series whose truth is known."""

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


def drawn(figure):
    return style.png(figure).startswith(b"\x89PNG")


def labels(axes):
    return [text.get_text() for text in axes.texts]


def test_the_distribution_marks_what_was_measured():
    values = np.concatenate([np.full(198, 1.0), [5.0, 11.0]])
    figure = distribution(Measurement(values), "t")
    assert labels(figure.axes[0]) == ["median 1.00 ms", "p99 1.04 ms", "mean 1.07 ms", "slowest 11.00 ms"]
    assert drawn(figure)
    assert sum(patch.get_height() for patch in figure.axes[0].patches) == 200


def test_a_99th_percentile_of_99_calls_is_rejected():
    with pytest.raises(ValueError, match="at least 100 calls, got 99"):
        distribution(Measurement(np.ones(99)), "t")


def test_the_sweep_names_the_batch_with_the_highest_throughput():
    figure = batch_sweep({size: Measurement(np.full(10, ms)) for size, ms in ((1, 2.0), (8, 4.0), (16, 10.0))})
    assert figure.get_suptitle() == "Batch 8: 4.0 times the throughput of batch 1, 2.0 times the latency"
    assert drawn(figure)


def test_coverage_counts_all_and_draws_some():
    intervals = [Interval(1.0, 0.9, 1.05)] * 2 + [Interval(1.1, 1.05, 1.2)] * 3
    figure = draw_coverage(intervals, 1.1, shown=4)
    assert figure.axes[0].get_title().startswith("3 of 5 intervals")
    colors = [line.get_color() for line in figure.axes[0].lines[:4]]
    assert colors == [style.color(1)] * 2 + [style.color(0)] * 2
    assert drawn(figure)
