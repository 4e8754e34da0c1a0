"""Every question, answer and piece of advice is in the figure, and no two boxes overlap."""

from __future__ import annotations

import pytest
from matplotlib.patches import FancyBboxPatch

from course_lib import style
from course_lib.teaching.deployment.figures import draw_tree

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


def test_advice_alone_is_a_tree():
    assert len(draw_tree("measure", "short").axes[0].patches) == 1


@pytest.mark.parametrize("tree", [{}, {"a?": {"yes": "b"}, "c?": {"no": "d"}}, {"a?": {}}])
def test_one_question_a_level(tree):
    with pytest.raises(ValueError, match="one question with answers"):
        draw_tree(tree, "no")
