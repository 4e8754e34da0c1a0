"""The generated day of requests, and what a padded call costs."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from course_lib.teaching.shapes import mail_day, padded_latency


def test_shares_are_those_of_the_description():
    sizes = mail_day(0, requests=20_000)
    shares = [(sizes <= 3).mean(), (sizes == 5).mean(), (sizes == 9).mean(), (sizes >= 20).mean()]
    assert np.allclose(shares, [0.18, 0.52, 0.22, 0.08], atol=0.012)  # three standard deviations of the largest


def test_a_hump_of_a_busy_machine_is_no_border():
    quiet = {1: 1.0, 5: 2.0, 8: 3.0, 16: 5.0, 64: 20.0}
    assert padded_latency(quiet) == quiet, "a curve that only rises stays as it is"
    assert padded_latency({**quiet, 8: 9.0}) == {**quiet, 8: 5.0}, "a call of 8 may be padded to 16"
    assert padded_latency({**quiet, 64: 40.0}) == {**quiet, 64: 40.0}, "nothing is larger than the largest"

    def best_border(latency):
        ms = np.interp(np.arange(65), list(latency), list(latency.values()))
        up_to = np.bincount(mail_day(0), minlength=65).cumsum()
        return min(range(1, 64), key=lambda end: up_to[end] * ms[end] + (up_to[-1] - up_to[end]) * ms[64])

    sizes = (1, 2, 3, 5, 8, 9, 12, 16, 24, 32, 48, 64)
    true = {n: 0.3 * n for n in sizes}
    disturbed = {**true, 9: 6.0}  # twice the time of a call of 9
    assert best_border(true) == 9 and best_border(disturbed) != 9, "the hump moved the border"
    assert best_border(padded_latency(disturbed)) in (9, 12)


@given(st.dictionaries(st.integers(1, 64), st.floats(0.01, 100), min_size=1))
def test_a_padded_price_never_falls_and_never_exceeds_its_measurement(latency):
    price = padded_latency(latency)
    assert list(price) == sorted(latency) and list(price.values()) == sorted(price.values())
    assert all(price[size] <= latency[size] for size in latency)
