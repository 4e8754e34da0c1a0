"""The figures of accuracy, by hand and against plain formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from course_lib.benchmark.accuracy import Deviation, argmax_agreement, deviation, relative_error, sqnr_db

values = arrays(np.float32, array_shapes(max_dims=3, max_side=6), elements=st.floats(-1e6, 1e6, width=32))


def test_by_hand() -> None:
    want, have = [3.0, 4.0], [3.0, 4.5]  # lengths 5 and 0.5
    assert relative_error(want, have) == pytest.approx(0.1)
    assert sqnr_db(want, have) == pytest.approx(20)
    assert relative_error(want, want) == 0 and sqnr_db(want, want) == math.inf
    assert relative_error([0.0, 0.0], [0.0, 1.0]) == math.inf and relative_error([0.0], [0.0]) == 0
    assert argmax_agreement([[1, 2], [3, 1]], [[2, 1], [9, 0]]) == 0.5


@given(values)
def test_sqnr_is_the_ratio_of_powers(want: np.ndarray) -> None:
    have = np.round(want)
    signal, noise = (np.square(part.astype(np.float64)).sum() for part in (want, want - have))
    if noise and signal:
        assert sqnr_db(want, have) == pytest.approx(10 * np.log10(signal / noise), abs=1e-6)


def test_a_value_that_is_lost_is_an_infinite_error_and_a_changed_answer() -> None:
    want = np.array([[0.0, 1.0], [1.0, 0.0]])
    for lost in (np.nan, np.inf, -np.inf):
        have = np.array([[0.0, 1.0], [lost, 0.0]])
        assert relative_error(want, have) == math.inf and sqnr_db(want, have) == -math.inf
    assert argmax_agreement(want, [[0.0, 1.0], [0.0, np.nan]]) == 0.5
    assert argmax_agreement(want, [[0.0, 1.0], [np.inf, 0.0]]) == 0.5  # though the largest is at the same place


def test_neither_huge_nor_tiny_numbers_break_the_length() -> None:
    for scale in (1e300, 1e-300):
        assert relative_error([3 * scale, 4 * scale], [3 * scale, 4.5 * scale]) == pytest.approx(0.1)


@pytest.mark.parametrize("function", [relative_error, sqnr_db, argmax_agreement])
def test_what_cannot_be_compared_is_rejected(function: object) -> None:
    with pytest.raises(ValueError, match=r"one shape, got \(2,\) and \(1, 2\)"):
        function([1.0, 2.0], [[1.0, 2.0]])  # type: ignore[operator]
    with pytest.raises(ValueError, match="the reference holds NaN"):
        function([1.0, math.nan], [1.0, 2.0])  # type: ignore[operator]


def test_rows_are_needed_for_an_argmax() -> None:
    with pytest.raises(ValueError, match=r"at least one row.*\(0, 3\)"):
        argmax_agreement(np.zeros((0, 3)), np.zeros((0, 3)))


def test_the_worst_output_counts_and_batches_may_differ_in_size() -> None:
    first = [np.array([[3.0, 4.0]]), np.array([[3.0, 4.0], [4.0, 3.0]])]  # one output in two batches of 1 and 2 rows
    second = [np.array([1.0]), np.array([1.0, 1.0])]
    want = list(zip(first, second, strict=True))
    have = [(first[0], second[0]), (np.array([[3.0, 4.0], [3.0, 4.0]]), second[1] + 0.01)]
    found = deviation(want, have)
    assert found.relative_error == pytest.approx(math.sqrt(2 / 75)) and found.max_abs_error == 1
    assert found.argmax_changes == pytest.approx(1 / 3) and found.nonfinite == 0
    assert found.sqnr_db == pytest.approx(10 * math.log10(75 / 2))
    lost = deviation(want, [want[0], (np.full((2, 2), np.nan), second[1])])
    assert lost == Deviation(math.inf, math.inf, lost.argmax_changes, 4) and lost.argmax_changes == pytest.approx(2 / 3)
