"""The picture of blocks."""

from __future__ import annotations

from course_lib import style
from course_lib.engines.backends.torch_tensorrt.blocks import Block, Blocks
from course_lib.teaching.torch_tensorrt import draw_partitions


def test_the_figure_counts_engines_and_shares():
    ways = {
        "whole": Blocks((Block(True, ("a",) * 4),), "2.13.0"),
        "cut": Blocks((Block(False, ("a",)), Block(True, ("b",)))),
    }
    figure = draw_partitions(ways, "borders")
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert "1 engine, 100 %" in texts and "1 engine, 50 %" in texts and texts.count("1") == 2
    assert "Torch-TensorRT 2.13.0" in figure.axes[0].get_xlabel()
    assert style.png(figure).startswith(b"\x89PNG")
