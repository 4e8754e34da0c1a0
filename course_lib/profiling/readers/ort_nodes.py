"""Find the nodes of a model in the graph that ONNX Runtime made from it.

A node of the optimized graph holds all nodes of the original graph between the tensors that it reads and those that it writes. The
tensors of both graphs must therefore be matched, and most keep their names through every optimization. The others are traced by
ONNX Runtime's known transformations: it duplicates nodes, changes layouts and types, and names fused nodes after the original
ones. If a doubt remains, the answer is empty, never a guess.

Source: ONNX Runtime's documentation, "Graph Optimizations in ONNX Runtime", and the graphs that its version 1.31 saves.
"""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

_RETYPED = re.compile(
    r"^(?:Inserted(?:PrecisionFree)?Cast_)+"
)  # before the name of a tensor that is float32 for want of FP16 kernels
_SMALL = 1024  # elements: constants up to this size are compared by what they hold, larger ones by their names
_AGAIN = re.compile(r"_token_\d+$")  # behind a name that existed already
_BLOCKED = "com.microsoft.nchwc"  # domain of the operators whose tensors have their channels in blocks


def fused_nodes(model: onnx.ModelProto, optimized: onnx.ModelProto) -> list[tuple[str, ...]]:
    """For each node of the optimized graph, the names of the original nodes that it computes, in the original order.

    If several nodes compute the same thing, one is left, and it holds them all. A node holds no names if ONNX Runtime added it (a
    change of layout or type) or if its origin is unknown. Nodes that the session computed as constants while it loaded are in none.

    Args:
        model: the original model with its weights. Nodes without a name do not appear in the result.
        optimized: the model that ``SessionOptions.optimized_model_filepath`` saved from it.
    """
    original = Values(model)
    traced = _Traced(original, optimized.graph)
    place = {node.name: row for row, node in enumerate(model.graph.node)}
    return [tuple(sorted(set(traced.nodes_of(row)) - {""}, key=place.__getitem__)) for row in range(len(optimized.graph.node))]


class _Traced:
    """The optimized graph, its tensors identified with those of the original as far as possible.

    Attributes:
        numbers: the original's number of a value, by the name of the optimized tensor that holds it.
    """

    def __init__(self, original: Values, graph: onnx.GraphProto) -> None:
        self.original = original
        self.nodes = list(graph.node)
        weights = {tensor.name for tensor in graph.initializer}
        self._changing = {value.name for value in graph.input} - weights  # tensors that depend on what the session is fed
        self._turned: set[str] = set()  # tensors behind a Transpose that ONNX Runtime added
        known = (*self._changing, *weights)
        self.numbers = {name: original.numbers[name] for name in known if name in original.numbers}
        for node in self.nodes:
            self._trace(node)
        self._kept = {node.name for node in self.nodes if self._itself(node) is not None}
        self._parties = self._connected()

    # ---- which tensor is which

    def _trace(self, node: onnx.NodeProto) -> None:
        if not self._changing.isdisjoint(node.input):
            self._changing.update(filter(None, node.output))  # optional outputs that are not requested have no name
        for name in node.output:
            if (plain := _RETYPED.sub("", name)) in self.original.numbers:
                self.numbers[name] = self.original.numbers[plain]
        for rule in (self._same_computation, self._same_node, self._moved, self._blocked, self._quantized):
            if all(name in self.numbers for name in node.output if name):
                return
            for name, number in zip(node.output, rule(node), strict=False):
                if name and number is not None:
                    self.numbers.setdefault(name, number)

    def _same_computation(self, node: onnx.NodeProto) -> Sequence[int | None]:
        """A duplicate, such as one DequantizeLinear for each reader."""
        return self.original.results(node, [self.numbers.get(name) for name in node.input])

    def _same_node(self, node: onnx.NodeProto) -> Sequence[int | None]:
        """A node with its name and its operator that reads what it always read; it may write another type or layout."""
        itself = self._itself(node)
        if itself is None or self._reads([node]) != self.original.changing.intersection(self.original.read_by(itself)):
            return ()
        return [self.original.numbers.get(name) for name in itself.output]

    def _moved(self, node: onnx.NodeProto) -> Sequence[int | None]:
        """The value that a node passes on if it only changes the order of values in memory."""
        turned = node.op_type == "Transpose" and node.name not in self.original.by_name
        if turned:
            self._turned.update(node.output)
        moved = turned or (node.domain == _BLOCKED and node.op_type in ("ReorderInput", "ReorderOutput"))
        return [self.numbers.get(node.input[0])] if moved else ()

    def _blocked(self, node: onnx.NodeProto) -> Sequence[int | None]:
        """Called ``x_nchwc`` after its output x; a sum and an activation may have been fused into it later."""
        name = _RETYPED.sub("", _AGAIN.sub("", node.name))
        start = self.original.numbers.get(name.removesuffix("_nchwc"))
        reads = self._reads([node])
        if node.domain != _BLOCKED or not name.endswith("_nchwc") or start is None or reads is None:
            return ()
        activation = next((a.s.decode() for a in node.attribute if a.name == "activation"), None)
        for number, operator in self._onwards(start):
            explained = self.original.between([number], self._stops([node]), reads) is not None
            if explained and activation in (None, operator):
                return [number]
        return ()

    def _quantized(self, node: onnx.NodeProto) -> Sequence[int | None]:
        """``QLinear...`` is named after the node that it computes, and writes the output of the QuantizeLinear after that node."""
        itself = self.original.by_name.get(_AGAIN.sub("", node.name))
        if itself is None or not node.op_type.startswith("QLinear"):
            return ()
        behind = self._onwards(self.original.value_of(itself))
        return [next((number for number, operator in behind if operator == "QuantizeLinear"), None)]

    def _onwards(self, number: int) -> Iterator[tuple[int, str]]:
        """A value with its operator, then the result of its only reader, and the result of that one's reader."""
        for _ in range(3):
            if number not in self.original.makers:
                return
            yield number, self.original.makers[number][0].op_type
            reader = self.original.only_reader(number)
            if reader is None:
                return
            number = self.original.value_of(reader)

    def _itself(self, node: onnx.NodeProto) -> onnx.NodeProto | None:
        """The original node whose name and operator this one has."""
        same = self.original.by_name.get(node.name)
        return same if same is not None and (same.op_type, same.domain) == (node.op_type, node.domain) else None

    def _reads(self, nodes: Sequence[onnx.NodeProto]) -> set[int] | None:
        """The values from outside that change from run to run; None if one of them is not identified."""
        names = _read_from_outside(nodes) & self._changing
        return {self.numbers[name] for name in names} if names <= self.numbers.keys() else None

    def _stops(self, nodes: Sequence[onnx.NodeProto]) -> set[int]:
        return {self.numbers[name] for name in _read_from_outside(nodes) if name in self.numbers}

    # ---- which node holds what

    def _connected(self) -> list[list[int]]:
        """For each node, the nodes from which it cannot be distinguished, because they exchange tensors that are not identified."""
        parties: list[list[int]] = []
        maker: dict[str, int] = {}
        for row, node in enumerate(self.nodes):
            doubtful = {maker[n] for n in node.input if n in maker and n in self._changing and n not in self.numbers}
            party = sorted({row}.union(*(parties[other] for other in doubtful)))
            parties.append(party)
            for member in party:
                parties[member] = party
            maker.update(dict.fromkeys(node.output, row))
        return parties

    def nodes_of(self, row: int) -> Iterable[str]:
        """Names of the original nodes inside one optimized node."""
        node, party = self.nodes[row], [self.nodes[member] for member in self._parties[row]]
        inside = self._inside(party)
        if inside is not None and (len(party) == 1 or len({self.original.value_of(n) for n in inside}) == 1):
            return self._own_twins([member.name for member in party], inside)
        itself = self._itself(node)
        return [itself.name] if itself is not None else []

    def _inside(self, party: Sequence[onnx.NodeProto]) -> list[onnx.NodeProto] | None:
        reads, stops = self._reads(party), self._stops(party)
        writes = {self.numbers[name] for node in party for name in node.output if name in self.numbers}
        if reads is None:
            return None
        inside = self.original.between(writes - reads, stops, reads - writes)
        if not self._turned.isdisjoint(name for node in party for name in node.input):
            # the added Transpose may have taken over one of the original's
            return None if any(node.op_type == "Transpose" for node in inside or ()) else inside
        return inside

    def _own_twins(self, names: Sequence[str], inside: Sequence[onnx.NodeProto]) -> Iterator[str]:
        """Of nodes that compute the same, those that were left in addition to this one keep their own."""
        for node in inside:
            twins = self.original.makers[self.original.value_of(node)]
            if len(twins) == 1 or node.name in names or node.name not in self._kept:
                yield node.name


def _read_from_outside(nodes: Sequence[onnx.NodeProto]) -> set[str]:
    return {name for node in nodes for name in node.input if name} - {name for node in nodes for name in node.output}


class Values:
    """The tensors of a graph by value: each has a number, and tensors that must be equal in every run have the same one.

    Attributes:
        numbers: by tensor name.
        makers: the nodes that compute a value, by its number. Constant nodes count as weights, not as computations.
        changing: numbers of the values that depend on a session's inputs.
        by_name: the named nodes.

    Source: value numbering, as in Cocke and Schwartz, Programming Languages and Their Compilers (1970); ONNX Runtime's elimination of
    common subexpressions works in the same way.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        graph = model.graph
        self._opsets = {imported.domain: imported.version for imported in model.opset_import}
        self.numbers: dict[str, int] = {}
        self.makers: dict[int, list[onnx.NodeProto]] = {}
        self.by_name = {node.name: node for node in graph.node if node.name}
        self._number_of: dict[Hashable, int] = {}
        self._readers: dict[int, list[onnx.NodeProto]] = {}
        for tensor in graph.initializer:
            self._number(tensor.name, (_content(tensor), 0))
        self._fed = {self._number(value.name, value.name) for value in graph.input if value.name not in self.numbers}
        self.changing = set(self._fed)
        for node in graph.node:
            self._add(node)
        self._results = {self.numbers.get(value.name) for value in graph.output}

    def _add(self, node: onnx.NodeProto) -> None:
        key, reads = self._key(node, [self.numbers.get(name) for name in node.input]), self.read_by(node)
        for place, name in enumerate(node.output):
            if not name:  # an optional output that is not requested
                continue
            number = self._number(name, (key, place))
            if node.op_type != "Constant":
                self.makers.setdefault(number, []).append(node)
            if not self.changing.isdisjoint(reads):
                self.changing.add(number)
        for number in reads:
            self._readers.setdefault(number, []).append(node)

    def _number(self, name: str, key: Hashable) -> int:
        self.numbers[name] = self._number_of.setdefault(key, len(self._number_of))
        return self.numbers[name]

    def _key(self, node: onnx.NodeProto, inputs: Sequence[int | None]) -> Hashable:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
            return _content(node.attribute[0].t)
        unique = "Random" in node.op_type or any(attribute.HasField("g") for attribute in node.attribute)
        attributes = {**self._defaults(node), **{attribute.name: attribute for attribute in node.attribute}}
        written = sorted(attribute.SerializeToString(deterministic=True) for attribute in attributes.values())
        return (node.domain, node.op_type, tuple(node.output) if unique else (), tuple(written), tuple(inputs))

    def _defaults(self, node: onnx.NodeProto) -> dict[str, onnx.AttributeProto]:
        """The implicit attributes of a node. ONNX Runtime writes them explicitly when it saves a graph."""
        from onnx import defs

        opset = self._opsets.get(node.domain, 0)
        if not defs.has(node.op_type, opset, node.domain):
            return {}
        attributes = defs.get_schema(node.op_type, opset, node.domain).attributes
        return {name: attribute.default_value for name, attribute in attributes.items() if attribute.default_value.name}

    def results(self, node: onnx.NodeProto, inputs: Sequence[int | None]) -> list[int | None]:
        """The result of a node of any graph for these values: the number of each output, None if this graph has no such value."""
        key = self._key(node, inputs)
        return [self._number_of.get((key, place)) for place in range(len(node.output))]

    def value_of(self, node: onnx.NodeProto) -> int:
        """Number of the first output that has a name."""
        return self.numbers[next(filter(None, node.output))]

    def read_by(self, node: onnx.NodeProto) -> set[int]:
        """Numbers of a node's inputs."""
        return {self.numbers[name] for name in node.input if name in self.numbers}

    def only_reader(self, number: int) -> onnx.NodeProto | None:
        """The only node that reads a value; None if there are several or the value is an output of the graph."""
        readers = self._readers.get(number, [])
        return readers[0] if len(readers) == 1 and number not in self._results else None

    def between(self, outputs: Iterable[int], inputs: Iterable[int], needed: Iterable[int] = ()) -> list[onnx.NodeProto] | None:
        """The nodes that compute `outputs` from `inputs` and constants.

        None if that is impossible: another fed value is involved, or one of the inputs in `needed` is not.
        """
        stops, unused = set(inputs), set(needed)
        todo, seen = list(outputs), set[int]()
        found: dict[int, onnx.NodeProto] = {}
        while todo:
            number = todo.pop()
            unused.discard(number)
            if number in seen or number in stops:
                continue
            seen.add(number)
            if number in self._fed:
                return None
            for node in self.makers.get(number, ()):
                found[id(node)] = node
                todo.extend(self.read_by(node))
        return None if unused else list(found.values())


def _content(tensor: onnx.TensorProto) -> Hashable:
    from onnx import TensorProto, numpy_helper

    if math.prod(tensor.dims) > _SMALL or tensor.data_location == TensorProto.EXTERNAL:
        return tensor.name
    array = numpy_helper.to_array(tensor)
    return (tensor.data_type, tuple(tensor.dims), array.tobytes() if array.dtype != object else str(array))
