"""The figures say what the numbers say."""

from __future__ import annotations

import numpy as np
import pytest

from course_lib.teaching.low_bits.figures import draw_grids


def test_grids_are_divided_by_their_largest_number():
    axes = draw_grids({"E2M1": np.array([-6.0, 0, 0.5, 6])}, "codes").axes[0]
    drawn = [segment[0][0] for segment in axes.collections[0].get_segments()]
    assert drawn == pytest.approx([0, 0.5 / 6, 1]) and axes.texts[0].get_text() == "3"
