"""What `torch.export` says, in a few lines and nothing on the screen, and the picture of blocks."""

from __future__ import annotations

import torch

from course_lib import style
from course_lib.engines.backends.torch_tensorrt.blocks import Block, Blocks
from course_lib.teaching.torch_tensorrt import draw_partitions, export_rejection


class Branch(torch.nn.Module):
    def forward(self, x):
        return x + 1 if x.sum() > 0 else x


class Constant(torch.nn.Module):
    def forward(self, x):
        return x.reshape(4, -1)


def test_a_branch_on_data_is_named_and_nothing_is_printed(capfd):
    said = export_rejection(Branch(), torch.ones(2))
    assert said.startswith("GuardOnDataDependentSymNode\nCould not guard on data-dependent expression")
    assert len(said.splitlines()) == 3
    assert capfd.readouterr().err == ""


def test_a_dimension_that_the_code_fixes_is_named():
    batch = torch.export.Dim("batch", min=1, max=8)
    said = export_rejection(Constant(), torch.ones(4, 2), dynamic_shapes=({0: batch},), lines=3)
    assert "specialized it to be a constant (4)" in said


def test_the_figure_counts_engines_and_shares():
    ways = {
        "whole": Blocks((Block(True, ("a",) * 4),), "2.13.0"),
        "cut": Blocks((Block(False, ("a",)), Block(True, ("b",)))),
    }
    figure = draw_partitions(ways, "borders")
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == ["whole\n1 engine, 100 %", "cut\n1 engine, 50 %"]
    assert [text.get_text() for text in figure.axes[0].texts] == ["4", "1", "1"]
    assert "Torch-TensorRT 2.13.0" in figure.axes[0].get_xlabel()
    assert style.png(figure).startswith(b"\x89PNG")
