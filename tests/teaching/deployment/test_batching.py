"""Dynamic batching against a clock that ticks by hand, and against what must hold for every rule."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.teaching.deployment.batching import run_batched


def cost(size):
    return 10.0 + size


def by_ticks(arrived, most, window):
    """Independent: whole milliseconds, one after the other."""
    waiting, answered, free, clock = [], {}, 0, 0
    while len(answered) < len(arrived):
        waiting += [i for i, at in enumerate(arrived) if at == clock]
        full = len(waiting) >= most
        if waiting and clock >= free and (full or clock >= arrived[waiting[0]] + window):
            batch, waiting = waiting[:most], waiting[most:]
            free = clock + cost(len(batch))
            answered.update(dict.fromkeys(batch, free))
        clock += 1
    return [answered[i] for i in range(len(arrived))]


@given(
    gaps=st.lists(st.integers(0, 20), min_size=1, max_size=30),
    most=st.integers(1, 6),
    window=st.integers(0, 30),
)
def test_against_a_clock_that_ticks(gaps, most, window):
    arrived = np.cumsum(gaps)
    found = run_batched(arrived, cost, most=most, window_ms=window)
    np.testing.assert_allclose(found.answered_ms, by_ticks(arrived, most, window))
    assert found.size.max() <= most and (found.started_ms >= found.arrived_ms).all()


def test_by_hand():
    found = run_batched(np.array([0.0, 1.0, 2.0, 30.0]), cost, most=16)
    np.testing.assert_array_equal(found.started_ms, [0, 11, 11, 30])  # the second and third came during the first run
    np.testing.assert_array_equal(found.answered_ms, [11, 23, 23, 41])
    np.testing.assert_array_equal(found.size, [1, 2, 2, 1])
    assert found.mean_size == pytest.approx(4 / 3) and found.per_second == pytest.approx(1e3 * 4 / 41)
