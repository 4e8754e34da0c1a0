"""The pictures show what they say; the errors in them are checked against known roundings."""

from __future__ import annotations

import numpy as np

from course_lib.plugins import rope, rope_tables
from course_lib.teaching.plugins.rope_figures import (
    rounding_errors,
    rounding_figure,
)


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
