"""Lecture 14: which plan loads where."""

from __future__ import annotations

from dataclasses import replace

import pytest

from course_lib.engines import LayerTable, Plan
from course_lib.teaching.deployment.figures import runs_on

PLAN = Plan("tensorrt", "11.0", b"plan", "", {}, ("sm89",), LayerTable((), {}), 0.0)


@pytest.mark.parametrize(
    ("targets", "capability", "expected"),
    [
        (("sm89",), "sm89", True),
        (("sm89",), "sm120", False),
        (("sm80", "sm120"), "sm120", True),
        (("sm80+",), "sm120", True),
        (("sm80+",), "sm75", False),
        ((), "sm75", True),
    ],
)
def test_by_hand(targets, capability, expected):
    assert runs_on(replace(PLAN, targets=targets), capability) is expected
