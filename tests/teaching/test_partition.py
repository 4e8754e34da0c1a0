"""The model of the partitioner against PyTorch's own splitter, which is what Torch-TensorRT uses, and by hand."""

from __future__ import annotations

import pytest
import torch

from course_lib import style
from course_lib.engines.backends.torch_tensorrt.converters import converted
from course_lib.teaching.torch_tensorrt import Block, Partition, draw_partitions, lowered, partition


class Chain(torch.nn.Module):
    """relu, relu, median, relu, relu, relu"""

    def forward(self, x):
        x = torch.relu(torch.relu(x)).median(-1).values
        return torch.relu(torch.relu(torch.relu(x)))


class Branches(torch.nn.Module):
    """Two ways that meet: one has a median, the other none."""

    def forward(self, x):
        left = torch.relu(x).median(-1).values
        right = torch.tanh(torch.sigmoid(x)).sum(-1)
        return torch.relu(left + right).cumprod(0) + 1


def exported(module):
    return torch.export.export(module.eval(), (torch.rand(3, 4),))


def by_pytorch(program):
    """Independent: `torch.fx`'s splitter with the same list of supported operators."""
    from torch.fx.passes.operator_support import OperatorSupportBase
    from torch.fx.passes.splitter_base import FxNetAccNodesFinder, _SplitterBase, _SplitterSettingBase

    class Support(OperatorSupportBase):
        def is_node_supported(self, submodules, node):
            name = str(node.target)
            return converted(f"operator.{node.target.__name__}" if name.startswith("<") else name, "2.14")

    class Splitter(_SplitterBase):
        def __init__(self, module):  # as Torch-TensorRT does it: without running the module
            self.module, self.operator_support, self.fusions = module, Support(), {}
            self.settings = _SplitterSettingBase(allow_non_tensor=True, skip_fusion=True)
            self.acc_nodes = FxNetAccNodesFinder(module, self.operator_support, True)()
            self.deps = self.find_deps()

    parts = Splitter(torch.fx.GraphModule(torch.nn.Module(), lowered(program, "2.14"))).put_nodes_into_subgraphs()
    return [(part.is_acc, len(part.nodes)) for part in parts]


def sizes(found):
    return [(block.in_tensorrt, len(block.operators)) for block in found.blocks]


@pytest.mark.parametrize("module", [Chain(), Branches(), torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU())])
def test_the_same_blocks_as_pytorchs_splitter(module):
    program = exported(module)
    assert sizes(partition(program, min_block_size=1)) == by_pytorch(program)


def test_by_hand():
    found = partition(exported(Chain()), min_block_size=1)
    assert sizes(found) == [(True, 2), (False, 1), (True, 4)]  # the last one begins with the getitem that takes the values
    assert found.unsupported == ("aten.median.dim",)
    assert (found.engines, found.share) == (2, pytest.approx(6 / 7))
    assert found.blocks[0].operators == ("aten.relu.default",) * 2


def test_small_blocks_go_back_and_join_their_neighbors():
    assert sizes(partition(exported(Chain()), min_block_size=3)) == [(False, 3), (True, 4)]
    assert sizes(partition(exported(Chain()))) == [(False, 7)]


def test_what_is_kept_in_pytorch_is_not_called_unsupported():
    found = partition(exported(Chain()), min_block_size=1, torch_executed_ops={"torch.ops.aten.relu.default"})
    assert found.unsupported == ("aten.median.dim",)
    assert sizes(found) == [(False, 3), (True, 1), (False, 3)]


def test_a_version_that_nobody_read_is_rejected():
    with pytest.raises(ValueError, match="no converters"):
        partition(exported(Chain()), version="1.0")


def test_the_figure_counts_engines_and_shares():
    ways = {
        "whole": Partition((Block(True, ("a",) * 4),), ()),
        "cut": Partition((Block(False, ("a",)), Block(True, ("b",))), ()),
    }
    figure = draw_partitions(ways, "borders")
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert "1 engine, 100 %" in texts and "1 engine, 50 %" in texts and texts.count("1") == 2
    assert style.png(figure).startswith(b"\x89PNG")


def test_no_operator_at_all():
    assert Partition((), ()).share == 0
