"""The partitioner of Torch-TensorRT 2.2.0: PyTorch's own graph splitter with the release's table of converters.

The class follows `dynamo/partitioning/_adjacency_partitioner.py` of the tag v2.2.0 (BSD 3-Clause), which PyTorch's `_SplitterBase` does
the work for. Its own rule is only what becomes of small segments.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx.passes.operator_support import OperatorSupportBase
from torch.fx.passes.splitter_base import FxNetAccFusionsFinder, FxNetAccNodesFinder, _SplitterBase
from torch.fx.passes.tools_common import CALLABLE_NODE_OPS

from course_lib.labs.lab11_torch_tensorrt import release


@dataclass(frozen=True)
class Segment:
    """Nodes that run consecutively in one place, in the order of the graph."""

    in_tensorrt: bool
    nodes: tuple[torch.fx.Node, ...]

    @property
    def operators(self) -> tuple[str, ...]:
        """Their operators, such as ``"aten.relu.default"``, without the parts of tuples."""
        return tuple(name for node in self.nodes if (name := release.name_of(node)) != "operator.getitem")


class _Support(OperatorSupportBase):
    def __init__(self, supported: Callable[[torch.fx.Node], bool]) -> None:
        self.supported = supported

    def is_node_supported(self, submodules: Any, node: torch.fx.Node) -> bool:
        return self.supported(node)


class _Settings:
    """What the splitter reads of `_SplitterSettingBase`, which would parse this process's own command line."""

    allow_non_tensor, skip_fusion, max_acc_splits, move_non_tensor_nodes_on_boundary = True, False, -1, False

    def __init__(self, min_block_size: int) -> None:
        self.min_acc_module_size = min_block_size


class _Splitter(_SplitterBase):
    def __init__(self, module: torch.fx.GraphModule, support: OperatorSupportBase, min_block_size: int) -> None:
        self.module, self.operator_support = module, support
        self.settings = _Settings(min_block_size)  # type: ignore[assignment]
        self.acc_nodes = FxNetAccNodesFinder(module, support, True)()
        self.fusions = FxNetAccFusionsFinder(module, set(self.acc_nodes))()
        self.deps = self.find_deps()
        self.update_deps_for_fusions()

    def starter_nodes(self) -> tuple[set[torch.fx.Node], set[torch.fx.Node]]:
        called = [node for node in self.module.graph.nodes if node.op in CALLABLE_NODE_OPS]
        inside = {node for node in called if node in self.acc_nodes}
        return set(called) - inside, inside


def without_small(runs: Iterable[tuple[bool, list[Any]]], min_block_size: int) -> list[tuple[bool, list[Any]]]:
    """Segments as 2.2.0 leaves them: small ones return to PyTorch, and neighbors there become one."""
    kept: list[tuple[bool, list[Any]]] = []
    for in_tensorrt, nodes in runs:
        if in_tensorrt and len(nodes) >= min_block_size:
            kept.append((True, list(nodes)))
        elif kept and not kept[-1][0]:
            kept[-1][1].extend(nodes)
        else:
            kept.append((False, list(nodes)))
    return kept


def partition(
    graph: torch.fx.GraphModule, *, min_block_size: int = release.MIN_BLOCK_SIZE, torch_executed_ops: Collection[str] = ()
) -> tuple[Segment, ...]:
    """The segments of a lowered graph, in the order of the run.

    Args:
        graph: from `program.built`.
        min_block_size: smaller segments return to PyTorch.
        torch_executed_ops: operators that stay in PyTorch, ``"torch.ops.aten.relu.default"``. Other forms of a name match nothing.
    """
    kept = frozenset(torch_executed_ops)

    def supported(node: torch.fx.Node) -> bool:
        if node.target is operator.getitem:
            return supported(node.args[0])  # type: ignore[arg-type]
        return release.converts(node) and f"torch.ops.{release.name_of(node)}" not in kept

    return split(graph, supported, min_block_size)


def split(graph: torch.fx.GraphModule, supported: Callable[[torch.fx.Node], bool], min_block_size: int) -> tuple[Segment, ...]:
    """The segments for any rule that says which nodes TensorRT runs."""
    place = {node: index for index, node in enumerate(graph.graph.nodes)}
    called = [node for node in graph.graph.nodes if node.op in CALLABLE_NODE_OPS]
    convertible = sum(map(supported, called))
    if not convertible or convertible < min_block_size:  # 2.2.0 returns the graph as it is
        return (Segment(False, tuple(called)),) if called else ()
    runs = _Splitter(graph, _Support(supported), min_block_size).put_nodes_into_subgraphs()
    found = without_small(((bool(one.is_acc), list(one.nodes)) for one in runs), min_block_size)
    return tuple(Segment(inside, tuple(sorted(nodes, key=place.__getitem__))) for inside, nodes in found)
