"""What a submission's ``model.onnx`` stores, read in a process of its own.

Apart from Q/DQ pairs, the graph must be the float graph of this lab with other numbers in it. The judge then writes its own graph
from the numbers, so no node of a submission is ever run, and no path can lie beside the quantized one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from course_lib.engines.worker.parent import Launcher
from course_lib.errors import CourseError
from course_lib.labs.framework import isolation, stored_numbers
from course_lib.labs.framework.isolation import transform
from course_lib.labs.framework.stored_numbers import Take, by_name, check_form, plain
from course_lib.labs.lab06_qat import graph_file
from course_lib.labs.lab06_qat.graph_file import MODEL
from course_lib.labs.lab06_qat.sandboxed.torch_forward import LAYERS
from course_lib.labs.lab06_qat.stored import Stored
from course_lib.labs.lab06_qat.stored import check as check_layers

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto

_ADVICE = "start from float_graph(...) of this lab, and insert pairs"
_DEFAULT_AXIS = 1  # of both operators in ONNX
_QUANTIZE, _DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"


def examined(model: bytes, *, launcher: Launcher | None = None, time_limit_s: float = 60.0) -> dict[str, Stored]:
    """What a submission's graph stores for each layer.

    Raises:
        BuildError: a node is not as in the float graph, or a pair is in a wrong place or has a wrong form.
    """
    return isolation.examined(__name__, model, parsed, MODEL, _ADVICE, launcher=launcher, time_limit_s=time_limit_s)


def parsed(answer: bytes) -> dict[str, Stored]:
    """The layers in the answer of that process, which could have been taken over by a file.

    Raises:
        EngineError: the answer does not have this form.
    """
    return stored_numbers.read(answer, _layers)


def _layers(forms: Any, take: Take) -> dict[str, Stored]:
    found: dict[str, Stored] = {}
    for name, shape in LAYERS.items():
        has_scale, has_input_scale = (bool(flag) for flag in forms[name])
        weight, bias = take(np.int8 if has_scale else np.float32, shape.weight), take(np.float32, (shape.outputs,))
        scale = take(np.float32, (shape.outputs,)) if has_scale else None
        found[name] = Stored(weight, scale, bias, float(take(np.float32, ())) if has_input_scale else None)
    check_layers(found)
    return found


def wire(layers: Mapping[str, Stored]) -> bytes:
    """The form that `parsed` reads."""
    forms = {name: (one.scale is not None, one.input_scale is not None) for name, one in layers.items()}
    parts = [json.dumps(forms).encode() + b"\n"]
    for one in layers.values():
        parts.append(one.weight.astype(np.int8 if one.scale is not None else np.float32).tobytes())
        parts += [np.asarray(part, np.float32).tobytes() for part in (one.bias, one.scale, one.input_scale) if part is not None]
    return b"".join(parts)


def main() -> None:
    """Entry point of the child process."""
    transform(lambda data: wire(stored(data)))


def stored(data: bytes) -> dict[str, Stored]:
    """The layers in a serialized model.

    Raises:
        CourseError: as in `examined`.
    """
    import onnx

    model, given = onnx.load_model_from_string(data), graph_file.float_graph(_any_layers())
    check_form(model, given, MODEL, _ADVICE)
    reader = _Reader(model.graph, given.graph)
    found = {name: reader.layer(name) for name in LAYERS}
    reader.check_rest()
    check_layers(found)
    return found


def _any_layers() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    return {name: (np.zeros(shape.weight), np.zeros(shape.outputs)) for name, shape in LAYERS.items()}


class _Reader:
    """Follows the float graph through the pairs of another one, and takes the numbers of its layers."""

    def __init__(self, graph: GraphProto, given: GraphProto) -> None:
        self.constants = by_name(graph.initializer, "constant")
        self.pairs: dict[str, NodeProto] = {}  # both operators, by their output
        self.used: set[str] = set()
        self.nodes: dict[str, NodeProto] = {}
        expected = {node.name: node for node in given.node}
        self.sources = {name: node.input[0] for name, node in expected.items() if name in LAYERS}
        for name, node in by_name(graph.node, "node").items():
            if node.op_type in (_QUANTIZE, _DEQUANTIZE) and not node.domain and len(node.output) == 1:
                self.pairs[node.output[0]] = node
            elif name in expected:
                self.nodes[name] = node
            else:
                _reject(f"the node {name[:60]!r} ({node.op_type[:40]}) is not in the float graph: insert nothing but pairs")
        for name, other in expected.items():
            if name not in self.nodes:
                _reject(f"the node {name!r} of the float graph is missing: {_ADVICE}")
            self._check_node(self.nodes[name], other)

    def _check_node(self, node: NodeProto, expected: NodeProto) -> None:
        """Whether a node is the given one, apart from what a layer reads through a pair."""
        places = (0, 1, 2) if node.name in LAYERS else ()
        for place, name in enumerate(node.input):
            if place not in places and name in self.pairs:
                _reject(
                    f"{node.name} ({node.op_type}) reads a pair. Training rounds only what layers read, so insert pairs on the "
                    "inputs of layers alone, and after SiLU instead of before it"
                )
        if plain(node, places) != plain(expected, places):
            if len(node.output) == 1 and node.output[0] != expected.output[0] and expected.output[0] in self.pairs:
                _reject(f"a pair writes {expected.output[0]!r}: the output of {node.name} must stay float")
            _reject(f"the node {node.name!r} ({node.op_type[:40]}) is not as in the float graph: change nothing but its inputs")

    def layer(self, name: str) -> Stored:
        """The numbers of one layer."""
        source, weight, bias = self.nodes[name].input
        if bias in self.pairs:
            _reject(f"the bias of {name} has a pair: TensorRT adds the bias to the 32-bit sum, so it must stay float")
        input_scale = None
        if source in self.pairs:
            source, input_scale = self._activation(name, source)
        if source != self.sources[name]:
            _reject(f"{name} reads {source[:60]!r}, expected {self.sources[name]!r} or a pair of it")
        values, scale = self._weight(name, weight) if weight in self.pairs else (self._float(weight, f"weight of {name}"), None)
        return Stored(values, scale, self._float(bias, f"bias of {name}"), input_scale)

    def _activation(self, name: str, result: str) -> tuple[str, float]:
        """The tensor before the pair that a layer reads, and the scale of the pair."""
        dequantize = self._taken_pair(result, _DEQUANTIZE, f"the input of {name}")
        quantize = self._taken_pair(dequantize.input[0], _QUANTIZE, f"the input of {name}")
        scales = [self._scale(one, f"input of {name}") for one in (quantize, dequantize)]
        if any(scale.size != 1 for scale in scales):
            _reject(f"the input of {name} has {scales[0].size} scales: an activation must have one scale for the whole tensor")
        if scales[0].item() != scales[1].item():
            _reject(f"the two nodes of the pair on the input of {name} have different scales")
        return quantize.input[0], float(scales[0].item())

    def _weight(self, name: str, result: str) -> tuple[np.ndarray, np.ndarray]:
        """Codes and scales of a weight: stored as INT8, or in float in front of a whole pair."""
        where, outputs = f"weight of {name}", LAYERS[name].outputs
        dequantize = self._taken_pair(result, _DEQUANTIZE, f"the {where}")
        nodes, source = [dequantize], dequantize.input[0]
        if source in self.pairs:
            nodes.append(self._taken_pair(source, _QUANTIZE, f"the {where}"))
            source = nodes[1].input[0]
        scales = [self._scale(node, where) for node in nodes]
        if any(scale.size == 1 and outputs > 1 for scale in scales):
            _reject(f"the {where} has one scale: expected {outputs}, one for each output channel")
        for node, scale in zip(nodes, scales, strict=True):
            axis = next((one.i for one in node.attribute if one.name == "axis"), None)
            if axis != 0:
                found = f"{_DEFAULT_AXIS}, the default" if axis is None else axis
                _reject(f"the scales of the {where} lie along axis {found}: its output channels are axis 0, so set axis=0")
            if scale.shape != (outputs,):
                _reject(f"the scales of the {where} have the shape {scale.shape}, expected ({outputs},)")
        if len(nodes) == 2 and not np.array_equal(scales[0], scales[1]):
            _reject(f"the two nodes of the pair on the {where} have different scales")
        array = self._array(source, where)
        if len(nodes) == 1:
            if array.dtype != np.int8:
                _reject(f"the {where} is {array.dtype} before its {_DEQUANTIZE}: store int8 codes, or insert a whole pair")
            return array, scales[0]
        if array.dtype != np.float32:
            _reject(f"the {where} is {array.dtype} in front of its pair, expected float32")
        if not (np.isfinite(array).all() and (scales[0] > 0).all()):
            _reject(f"the {where} or its scales are not usable: expected finite weights and positive scales")
        steps = np.rint(array / scales[0].reshape(-1, *[1] * (array.ndim - 1)))
        return np.clip(steps, -128, 127).astype(np.int8), scales[0]

    def _taken_pair(self, result: str, operator: str, where: str) -> NodeProto:
        node = self.pairs.get(result)
        if node is None or node.op_type != operator:
            _reject(f"{where} has half a pair: expected a {_QUANTIZE}, then a {_DEQUANTIZE}")
        if {one.name for one in node.attribute} - {"axis"} or not 2 <= len(node.input) <= 3:
            _reject(f"the {operator} of {where} has other attributes or inputs than scale, zero point and axis")
        self.used.add(result)
        return node

    def _scale(self, node: NodeProto, where: str) -> np.ndarray:
        scale = self._array(node.input[1], f"scale of the {where}")
        if scale.dtype != np.float32:
            _reject(f"the scale of the {where} is {scale.dtype}, expected float32")
        if len(node.input) > 2 and node.input[2]:
            zero = self._array(node.input[2], f"zero point of the {where}")
            if zero.dtype != np.int8 or zero.any():
                _reject(f"the zero point of the {where} must be 0 and int8: TensorRT's INT8 is signed and symmetric")
        elif node.op_type == _QUANTIZE:
            _reject(
                f"the pair of the {where} has no zero point, so ONNX makes its codes unsigned: give it the int8 zero point 0"
            )
        return scale

    def _float(self, name: str, where: str) -> np.ndarray:
        array = self._array(name, where)
        if array.dtype != np.float32:
            _reject(f"the {where} is {array.dtype}, expected float32, or int8 codes with a {_DEQUANTIZE}")
        return array

    def _array(self, name: str, where: str) -> np.ndarray:
        from onnx import numpy_helper

        if name not in self.constants:
            _reject(f"the {where} is not a constant of the file")
        self.used.add(name)
        tensor = self.constants[name]
        if np.prod(tensor.dims, dtype=np.float64) > graph_file.MAX_BYTES:
            _reject(f"the {where} is too large")
        return numpy_helper.to_array(tensor)

    def check_rest(self) -> None:
        """Whether every pair and constant has been read by a layer."""
        for output, node in self.pairs.items():
            if output not in self.used:
                _reject(
                    f"the {node.op_type} {node.name[:60]!r} is not before a layer, which is the only place that training rounds"
                )
        for name in self.constants:
            if name not in self.used:
                _reject(f"the constant {name[:60]!r} is stored and not used: remove the float weight that its codes replace")


def _reject(message: str) -> NoReturn:
    raise CourseError(message)
