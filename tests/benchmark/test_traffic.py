"""The generated day of requests."""

from __future__ import annotations

import numpy as np

from course_lib.benchmark.traffic import LARGEST, mail_day


def test_a_day_is_what_its_seed_says():
    assert np.array_equal(mail_day(3), mail_day(3))
    assert not np.array_equal(mail_day(3), mail_day(4))


def test_requests_are_house_numbers_postcodes_routes_and_trays():
    sizes = mail_day(0, requests=20_000)
    assert sizes.shape == (20_000,) and sizes.dtype == np.int64
    found = set(np.unique(sizes).tolist())
    assert found == {1, 2, 3, 5, 9} | set(range(20, 61, 5))
    assert max(found) <= LARGEST


def test_shares_are_those_of_the_description():
    sizes = mail_day(0, requests=20_000)
    shares = [(sizes <= 3).mean(), (sizes == 5).mean(), (sizes == 9).mean(), (sizes >= 20).mean()]
    assert np.allclose(shares, [0.18, 0.52, 0.22, 0.08], atol=0.012)  # three standard deviations of the largest
