"""The pictures show what they say; the errors in them are checked against known roundings."""

from __future__ import annotations

import numpy as np
import pytest

from course_lib.benchmark import recorded
from course_lib.plugins import rope, rope_tables
from course_lib.teaching.plugins.rope_figures import (
    relative_figure,
    rotation_figure,
    rounding_errors,
    rounding_figure,
    speed_figure,
)


def test_dials_show_the_angles() -> None:
    drawn = rotation_figure((0, 4), positions=3)
    for axes, pair in zip(drawn.axes, (0, 4), strict=True):
        tips = np.array([line.get_xydata()[1] for line in axes.lines[1:]])  # type: ignore[index]
        angles = [position * 10000 ** (-2 * pair / 64) for position in range(3)]
        assert np.allclose(tips, [(np.cos(angle), np.sin(angle)) for angle in angles], atol=1e-6)


def test_scores_depend_on_the_distance_only() -> None:
    rng = np.random.default_rng(1)
    query, key = rng.standard_normal((2, 16))
    plain, turned = (np.asarray(axes.images[0].get_array()) for axes in relative_figure(query, key, positions=9).axes[:2])
    assert np.allclose(plain, query @ key)
    assert np.allclose(turned[1:, 1:], turned[:-1, :-1], atol=1e-5) and turned[0, 0] == pytest.approx(query @ key)
    assert not np.allclose(turned[0], turned[0, 0])


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


def test_recorded_speeds() -> None:
    rows = recorded("rope_h200").rows
    drawn = speed_figure(rows)
    share, gain = ([bar.get_width() for bar in axes.patches] for axes in drawn.axes)  # type: ignore[attr-defined]
    assert len(share) == len(gain) == len(rows)
    assert max(share[:6]) < 1 < share[7]  # with one token a copy is its launch, and ours begins early
    assert (share[0], share[1]) == (0.9494, 0.9465)  # the negation was the faster copy of FP32, the copy that of FP16
    assert (gain[1], gain[7]) == (1.1448, 1.1658)
