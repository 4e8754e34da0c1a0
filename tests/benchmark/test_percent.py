"""Percentages as a reader expects them."""

from __future__ import annotations

import pytest

from course_lib.benchmark.sensitivity_plot import in_percent


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (2.1, "210 %"),
        (0.0045, "0.45 %"),
        (0.314, "31 %"),
        (0.994, "99 %"),
        (0.996, "100 %"),
        (1.0, "100 %"),
        (12345.6, "1234560 %"),
        (0.0, "0 %"),
        (-1.5, "-150 %"),
    ],
)
def test_no_percentage_has_an_exponent(share: float, text: str) -> None:
    assert in_percent(share) == text
