"""A module as Torch-TensorRT 2.2.0 would compile it, on a CPU: its segments, and its answers with the mistakes that were recorded.

The segments follow from the release's rules. Each segment is computed by PyTorch. An attention is computed with query and value exchanged
in the one form for which a GPU showed it (`course_lib/records/torch_tensorrt_h200.json`, section ``attention``).
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from course_lib.labs.lab11_torch_tensorrt import release
from course_lib.labs.lab11_torch_tensorrt.partitioner import Segment, partition
from course_lib.labs.lab11_torch_tensorrt.program import built
from course_lib.labs.lab11_torch_tensorrt.sandboxed.export_model import described

_PERMUTE, _SLICE, _SPLIT = "aten.permute.default", "aten.slice.Tensor", "aten.split"
_RESHAPES = ("aten.reshape.default", "aten.view.default", "aten._unsafe_view.default", "aten.clone.default")
_PRODUCTS = ("aten.addmm.default", "aten.mm.default", "aten.bmm.default", "aten.convolution.default")
CONSTANT = "a constant"  # in the place of an operator
_MOST_AXES = 4  # of what is divided: with five, parts are those of `unbind`


def attention_form(node: torch.fx.Node) -> str:
    """What 2.2.0 makes of a fused attention, in the words of `release`."""
    if len(node.args) != 3 or node.kwargs:
        return release.UNRECORDED
    needs = [need for need in node.args if isinstance(need, torch.fx.Node)]
    if {release.name_of(need) for need in needs} == {"aten.squeeze.dim"}:
        return release.EXCHANGED  # the parts of `unbind`
    return release.RIGHT if len(needs) == len(node.args) and all(map(_recorded_as_right, needs)) else release.UNRECORDED


def _recorded_as_right(need: torch.fx.Node) -> bool:
    """Whether heads and rows of a projection, or of a part of `chunk`, are exchanged once: last, or before `chunk` as in the encoder."""
    if release.name_of(need) not in (_PERMUTE, "operator.getitem"):
        return False
    permutes, node = 0, need
    while not _projected(node):
        if node.target is operator.getitem and isinstance(node.args[0], torch.fx.Node):
            node = node.args[0]
        name, source = release.name_of(node), node.args[0] if node.args else None
        if not isinstance(source, torch.fx.Node):
            return False
        if name == _PERMUTE:
            permutes += 1
            if [place % 4 for place in node.args[1]] != [0, 2, 1, 3]:  # type: ignore[union-attr, operator]
                return False
        elif name == _SLICE or name.startswith(_SPLIT):
            if len(source.meta["val"].shape) > _MOST_AXES:
                return False
        elif name not in _RESHAPES:
            return False
        node = source
    return permutes == 1


def _projected(node: torch.fx.Node) -> bool:
    """Whether a node is a matrix product, with or without a bias."""
    if release.name_of(node) == "aten.add.Tensor":
        terms = [term for term in node.all_input_nodes if not _constant(term)]
        if len(node.all_input_nodes) != 2 or len(terms) != 1:
            return False
        node = terms[0]
        while release.name_of(node) in _RESHAPES:
            node = node.all_input_nodes[0]
    return release.name_of(node) in _PRODUCTS


def _constant(node: torch.fx.Node) -> bool:
    """Whether a node depends on no input."""
    seen, waiting = {node}, [node]
    while waiting:
        needs = [need for need in waiting.pop().all_input_nodes if need not in seen]
        seen.update(needs)
        waiting += needs
    return all(one.op != "placeholder" for one in seen)


@dataclass(frozen=True)
class Compiled:
    """A lowered graph and its segments. Call it as a compiled module of 2.2.0: it returns a tuple.

    Attributes:
        graph: the lowered graph.
        segments: in the order of the run.
    """

    graph: torch.fx.GraphModule
    segments: tuple[Segment, ...]

    @property
    def engines(self) -> int:
        """Number of segments that TensorRT runs."""
        return sum(one.in_tensorrt for one in self.segments)

    def in_pytorch(self) -> list[tuple[str, str]]:
        """Operators outside TensorRT, each once, with the reason."""
        left = [node for one in self.segments if not one.in_tensorrt for node in one.nodes]
        return list(
            dict.fromkeys((release.name_of(node), reason(node)) for node in left if node.target is not operator.getitem)
        )

    def attentions(self) -> list[str]:
        """The `attention_form` of each fused attention in TensorRT."""
        nodes = (node for one in self.segments if one.in_tensorrt for node in one.nodes)
        return [attention_form(node) for node in nodes if release.name_of(node) == release.ATTENTION]

    def narrow(self) -> list[tuple[str, str]]:
        """Operators whose results have fewer digits than float32, each once, with the type."""
        found: dict[tuple[str, str], None] = {}
        for node in self.graph.graph.nodes:
            kind = getattr(node.meta.get("val"), "dtype", torch.float32)
            if _is_narrow(kind):
                name = release.name_of(node) if node.op == "call_function" else CONSTANT
                found[name, str(kind).removeprefix("torch.")] = None
        return list(found)

    def values(self, inputs: torch.Tensor, *, eager: bool = False, wide: bool = False) -> dict[str, Any]:
        """The result of each node by name, in the order of the graph.

        Args:
            eager: as PyTorch computes it.
            wide: with float32 in place of each type with fewer digits.
        """
        inside = {node for one in self.segments if one.in_tensorrt for node in one.nodes}
        found: dict[torch.fx.Node, Any] = {}
        with torch.inference_mode():
            for node in self.graph.graph.nodes:
                if node.op == "placeholder":
                    found[node] = inputs
                elif node.op == "get_attr":
                    value = node.meta["val"]
                    found[node] = value.float() if wide and _is_narrow(value.dtype) else value
                elif node.op == "call_function":
                    args, kwargs = torch.fx.node.map_aggregate((node.args, node.kwargs), _widened if wide else lambda one: one)
                    args, kwargs = torch.fx.node.map_arg((args, kwargs), found.__getitem__)
                    wrong = not eager and node in inside and release.name_of(node) == release.ATTENTION
                    if wrong and attention_form(node) == release.EXCHANGED:
                        args = args[::-1]
                    found[node] = node.target(*args, **kwargs)
                else:
                    found[node] = found[node.args[0]]
        return {node.name: value for node, value in found.items()}

    def __call__(self, inputs: torch.Tensor) -> tuple[torch.Tensor]:
        """The answer as 2.2.0 computes it."""
        return (self.values(inputs)["output"],)


def _is_narrow(kind: torch.dtype) -> bool:
    """Whether numbers of a type have fewer digits than those of float32."""
    wide = (torch.float32, torch.float64, torch.complex64, torch.complex128)
    return (kind.is_floating_point or kind.is_complex) and kind not in wide


def _widened(argument: Any) -> Any:
    return torch.float32 if isinstance(argument, torch.dtype) and _is_narrow(argument) else argument


def reason(node: torch.fx.Node) -> str:
    """Why a node runs in PyTorch."""
    if not release.has_converter(release.name_of(node)):
        return "no converter"
    return "in a small segment, or kept in PyTorch" if release.converts(node) else "arguments that its converter rejects"


def compiled(
    module: torch.nn.Module,
    inputs: torch.Tensor,
    *,
    min_block_size: int = release.MIN_BLOCK_SIZE,
    torch_executed_ops: Collection[str] = (),
    **ignored: object,
) -> Compiled:
    """What ``torch_tensorrt.compile(module, ir="dynamo", inputs=[inputs], ...)`` of 2.2.0 makes of a module with one input.

    Args:
        ignored: other keywords. 2.2.0 ignores them, too, if it does not know them.

    Raises:
        EngineError: the module cannot be run as a graph of operators.
    """
    nodes = described(module, inputs, release.decomposed())
    return from_nodes(nodes, module.state_dict(), inputs, min_block_size=min_block_size, torch_executed_ops=torch_executed_ops)


def from_nodes(
    nodes: Sequence[dict[str, Any]],
    weights: Mapping[str, torch.Tensor],
    inputs: torch.Tensor,
    *,
    min_block_size: int = release.MIN_BLOCK_SIZE,
    torch_executed_ops: Collection[str] = (),
) -> Compiled:
    """The same for exported nodes, see `program.built`."""
    graph = built(nodes, weights, inputs)
    return Compiled(graph, partition(graph, min_block_size=min_block_size, torch_executed_ops=torch_executed_ops))
