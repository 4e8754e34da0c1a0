"""Sectors counted by hand, and errors checked against known roundings."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.plugins import rope, rope_tables
from course_lib.teaching.plugins.coalescing import SECTOR, WARP, Request, request
from course_lib.teaching.plugins.rope_figures import (
    rounding_errors,
    rounding_figure,
)


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


def test_errors_are_counted_in_roundings() -> None:
    exact = np.array([[[[3.0, 1.0, 4.0, 0.0]]]])  # pairs (3, 4) of length 5 and (1, 0) of length 1
    y = (exact + np.array([0, 2.0**-10, 5 * 2.0**-8, 0])).astype(np.float16)
    assert np.allclose(rounding_errors(y, exact)[0, 0, 0], [0, 2, 8, 0])


def test_a_better_type_inside_is_seen() -> None:
    rng = np.random.default_rng(2)
    x, tables = rng.standard_normal((1, 40, 2, 32)).astype(np.float16), rope_tables(40, 32)
    exact = rope(x, *tables)
    rounded, sloppy = (rounding_errors(y, exact) for y in (exact.astype(np.float16), rope(x, *tables, dtype=np.float16)))
    assert rounded.max() <= 1 < sloppy.max()
    drawn = rounding_figure({"float16": rounded, "float32": 2 * rounded})
    assert drawn.axes[0].get_title() == f"No number is further off than {2 * rounded.max():.2f} roundings"
