"""Sectors counted by hand, and against a count that goes over every byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.teaching.plugins.coalescing import SECTOR, WARP, Request, request


@pytest.mark.parametrize(
    ("offset", "size", "sectors", "used"),
    [
        (lambda thread: 4 * thread, 4, 4, 1.0),  # 128 bytes in a row
        (lambda thread: 4 * thread + 4, 4, 5, 0.8),  # 128 of 160
        (lambda thread: 8 * thread, 4, 8, 0.5),
        (lambda thread: 2 * thread, 2, 2, 1.0),
        (lambda thread: 256 * thread, 2, 32, 1 / 16),
        (lambda thread: 16 * thread, 16, 16, 1.0),
        (lambda thread: 0, 4, 1, 4 / 32),  # all threads want the same number
        (lambda thread: 31 if thread == 0 else 0, 2, 2, 4 / 64),  # one load lies across a border
    ],
)
def test_hand_computed_requests(offset, size, sectors, used):  # type: ignore[no-untyped-def]
    one = request("one", offset, size)
    assert len(one.sectors) == sectors and one.used == pytest.approx(used)


@given(st.lists(st.integers(0, 5000), min_size=WARP, max_size=WARP), st.sampled_from((1, 2, 4, 8, 16)))
def test_order_and_place_do_not_matter(offsets: list[int], size: int) -> None:
    one, moved = Request("", tuple(offsets), size), Request("", tuple(o + 10 * SECTOR for o in reversed(offsets)), size)
    assert tuple(sector + 10 for sector in one.sectors) == moved.sectors
    assert one.used == moved.used and 0 < one.used <= 1
    assert max(offsets) // SECTOR in one.sectors
