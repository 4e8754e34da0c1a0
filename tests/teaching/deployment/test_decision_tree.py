"""Every question, answer and piece of advice is in the figure, and no two boxes overlap."""

from __future__ import annotations

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
