"""The figures of lecture 14: which plan loads where, and the questions of the decision tree."""

from __future__ import annotations

from dataclasses import replace

import pytest
from matplotlib.patches import FancyBboxPatch

from course_lib import style
from course_lib.engines import LayerTable, Plan
from course_lib.teaching.deployment.figures import draw_tree, runs_on

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


TREE = {"Does it load?": {"no": "build again", "yes": {"Is it right?": {"no": "first difference", "yes": "measure"}}}}


def test_all_texts_and_no_overlap():
    figure = draw_tree(TREE, "ask in this order")
    axes = figure.axes[0]
    texts = {text.get_text().replace("\n", " ") for text in axes.texts} - {""}
    assert texts == {"Does it load?", "no", "yes", "build again", "Is it right?", "first difference", "measure"}
    boxes = [patch.get_bbox() for patch in axes.patches if isinstance(patch, FancyBboxPatch)]
    assert len(boxes) == 5
    for index, one in enumerate(boxes):
        assert not any(one.overlaps(other) for other in boxes[index + 1 :])
    assert style.png(figure).startswith(b"\x89PNG")
