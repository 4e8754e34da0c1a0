"""Waiting times against a queue that is stepped through by hand, and against theory."""

from __future__ import annotations

import numpy as np
import pytest

from course_lib import style
from course_lib.benchmark.queueing import draw_over_load, over_load, response_ms


def by_the_clock(service, between):
    """Independent: the absolute times of a single server."""
    arrivals, free, found = np.cumsum(between) - between[0], 0.0, []
    for arrival, work in zip(arrivals, service, strict=True):
        free = max(free, arrival) + work
        found.append(free - arrival)
    return np.array(found)


def test_against_a_server_stepped_through_by_the_clock():
    rng = np.random.default_rng(3)
    service, between = rng.exponential(2, 300), rng.exponential(2.5, 300)
    np.testing.assert_allclose(response_ms(service, between), by_the_clock(service, between), rtol=1e-9)


def test_constant_service_at_half_load_matches_pollaczek_khinchine():
    found = over_load(np.array([10.0]), [0.5], requests=200_000)[0.5]
    assert found.mean() == pytest.approx(10 + 0.5 * 10 / (2 * (1 - 0.5)), rel=0.02)


def test_more_load_means_more_waiting_and_the_title_says_how_much():
    service = np.array([1.0, 1.2, 0.9])
    found = over_load(service, [0.2, 0.9], requests=2000)
    assert np.median(found[0.2]) < np.median(found[0.9])
    figure = draw_over_load(found, 1.0)
    assert f"more than {np.percentile(found[0.9], 99):.0f} times" in figure.axes[0].get_title()
    assert style.png(figure).startswith(b"\x89PNG")


def test_what_has_no_answer_is_rejected():
    with pytest.raises(ValueError, match="without bound"):
        over_load(np.ones(3), [0.5, 1.0])
    with pytest.raises(ValueError, match="for each request"):
        response_ms(np.ones(3), np.ones(2))
