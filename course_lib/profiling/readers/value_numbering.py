"""The tensors of an ONNX graph numbered by value, so that equal computations are recognized under any name.

Source: value numbering, as in Cocke and Schwartz, Programming Languages and Their Compilers (1970); ONNX Runtime's elimination of common
subexpressions works in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

_SMALL = 1024  # elements: constants up to this size are compared by what they hold, larger ones by their names


class Values:
    """Every tensor has a number, and tensors that must be equal in every run have the same one.

    Attributes:
        numbers: by tensor name.
        makers: the nodes that compute a value, by its number. Constant nodes count as weights, not as computations.
        changing: numbers of the values that depend on a session's inputs.
        by_name: the named nodes.
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
