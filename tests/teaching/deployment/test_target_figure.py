"""Which plan loads where: the grid says what `load` would say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from course_lib import style
from course_lib.engines import LayerTable, Plan
from course_lib.teaching.deployment.figures import draw_targets, runs_on

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


def test_one_mark_a_cell():
    figure = draw_targets({"one": PLAN, "any": replace(PLAN, targets=())}, {"sm75": "T4", "sm89": "RTX 4090"}, "where")
    marks = [line.get_marker() for line in figure.axes[0].lines]
    assert marks == ["x", "o", "o", "o"]
    assert [tick.get_text() for tick in figure.axes[0].get_xticklabels()] == ["T4\nsm75", "RTX 4090\nsm89"]
    assert style.png(figure).startswith(b"\x89PNG")
