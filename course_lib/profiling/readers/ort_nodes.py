"""Find the nodes of a model in the graph that ONNX Runtime made from it.

A node of the optimized graph holds all nodes of the original graph between the tensors that it reads and those that it writes. Most
tensors keep their names through every optimization. The others are recognized by the names that ONNX Runtime gives to the nodes and
tensors of another layout or type. If a doubt remains, the answer is empty, never a guess.

Source: ONNX Runtime's documentation, "Graph Optimizations in ONNX Runtime", and the graphs that its version 1.31 saves.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

# What ONNX Runtime puts around the name of a tensor or node that exists in another type or layout, or for the second time.
_ADDED = re.compile(r"^(?:Inserted(?:PrecisionFree)?Cast_)+|(?:_nchwc|_token_\d+|/duplicated)+$")
_BLOCKED = "com.microsoft.nchwc"  # domain of the operators whose tensors have their channels in blocks
_REORDERS = ("ReorderInput", "ReorderOutput")
_INPUTS_WITH_A_SUM = 4  # of a convolution in blocks: image, weights, bias, and what is added to the result


def fused_nodes(model: onnx.ModelProto, optimized: onnx.ModelProto) -> list[tuple[str, ...]]:
    """For each node of the optimized graph, the names of the original nodes that it computes, in the original order.

    A node holds no names if ONNX Runtime added it (a change of layout or type) or if its origin is unknown. Nodes that the session
    computed as constants while it loaded are in none.

    Args:
        model: the original model with its weights. Nodes without a name do not appear in the result.
        optimized: the model that ``SessionOptions.optimized_model_filepath`` saved from it.
    """
    original = _Original(model.graph)
    renamed: dict[str, str] = {}  # tensors of the optimized graph whose original has another name
    turned: set[str] = set()  # tensors after a Transpose that ONNX Runtime added
    found = []
    for node in optimized.graph.node:
        renamed.update(original.outputs_of(node, renamed))
        turned.update(node.output if original.is_added_transpose(node) else ())
        written = [renamed.get(name, name) for name in node.output if name]
        read = {renamed.get(name, name) for name in node.input if name}
        held = original.between(read, written)
        if not turned.isdisjoint(node.input) and any(one.op_type == "Transpose" for one in held):
            held = []  # the added Transpose may have taken over one of the original's
        found.append(tuple(one.name for one in held) or original.itself(node))
    return found


class _Original:
    def __init__(self, graph: onnx.GraphProto) -> None:
        self._nodes = list(graph.node)
        self._by_name = {node.name: node for node in self._nodes if node.name}
        self._makers = {name: node for node in self._nodes for name in node.output if name}
        self._fed = {value.name for value in graph.input} - {tensor.name for tensor in graph.initializer}

    def outputs_of(self, node: onnx.NodeProto, renamed: Mapping[str, str]) -> dict[str, str]:
        """The original tensors in the outputs of an optimized node, where the names differ."""
        output = node.output[0]
        if output in self._makers:
            return {}
        if (plain := _ADDED.sub("", output)) in self._makers:
            return {output: plain}
        name = _ADDED.sub("", node.name)
        if node.op_type in _REORDERS or self.is_added_transpose(node):
            return {output: renamed.get(node.input[0], node.input[0])}
        if node.domain == _BLOCKED:  # called after its output; a sum and an activation may have been fused into it later
            activation = next((one.s.decode() for one in node.attribute if one.name == "activation"), "")
            last = activation or ("Add" if len(node.input) == _INPUTS_WITH_A_SUM else "")
            return self._onwards(output, name, last)
        if node.op_type.startswith("QLinear") and name in self._by_name:
            return self._onwards(output, self._by_name[name].output[0], "QuantizeLinear")
        return dict(zip(node.output, self._by_name[node.name].output, strict=False)) if self.itself(node) else {}

    def _onwards(self, output: str, tensor: str, operator: str) -> dict[str, str]:
        """The first of a tensor, the result of its only reader, and the result of that one's, which `operator` makes."""
        for _ in range(3):
            maker = self._makers.get(tensor)
            if maker is not None and maker.op_type == (operator or maker.op_type):
                return {output: tensor}
            readers = [node for node in self._nodes if tensor in node.input]
            if len(readers) != 1:
                break
            tensor = readers[0].output[0]
        return {}

    def is_added_transpose(self, node: onnx.NodeProto) -> bool:
        """Whether ONNX Runtime added this change of layout."""
        return node.op_type == "Transpose" and node.name not in self._by_name

    def itself(self, node: onnx.NodeProto) -> tuple[str, ...]:
        """The original node with its name and its operator."""
        same = self._by_name.get(node.name)
        return (node.name,) if same is not None and (same.op_type, same.domain) == (node.op_type, node.domain) else ()

    def between(self, inputs: Iterable[str], outputs: Iterable[str]) -> list[onnx.NodeProto]:
        """The nodes that compute `outputs` from `inputs` and constants; none if another input of the model is involved."""
        seen, todo = set(inputs), list(outputs)
        held: set[str] = set()
        while todo:
            name = todo.pop()
            if name in seen:
                continue
            seen.add(name)
            if name in self._fed:
                return []
            if (maker := self._makers.get(name)) is not None:
                held.add(maker.name)
                todo.extend(filter(None, maker.input))
        return [node for node in self._nodes if node.name in held - {""}]
