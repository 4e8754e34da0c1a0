"""TensorRT 8.6 takes precision from flags and layers, not from the graph: what the course demands of its layers."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import onnx
import pytest

from course_lib.engines.backends.tensorrt.config import demand_half, written_types
from course_lib.labs.lab04_mixed_precision import reference
from course_lib.standin.trt.network import layer_type

HALF, SINGLE, INTEGER = "half", "single", "int32"


class Layer:
    """As `get_layer` returns it: a base class without `to_type`. The parsed tensors are FP32 or integers, as in 8.6.0."""

    def __init__(self, kind: str, inputs: str, output: str, dtype: str = SINGLE, to_type: str = "") -> None:
        self.type = SimpleNamespace(name=kind)
        self.tensors = [SimpleNamespace(name=name, dtype=SINGLE) if name else None for name in inputs.split(",")]
        self.output = SimpleNamespace(name=output, dtype=dtype)
        self.num_inputs, self.num_outputs = len(self.tensors), 1
        self.hidden = to_type
        self.precision = ""
        self.output_types: dict[int, str] = {}

    def get_input(self, index: int) -> Any:
        return self.tensors[index]

    def get_output(self, index: int) -> Any:
        return self.output

    def set_output_type(self, index: int, dtype: str) -> None:
        self.output_types[index] = dtype


class CastLayer(Layer):
    @property
    def to_type(self) -> str:
        return self.hidden


TRT = SimpleNamespace(
    NetworkDefinitionCreationFlag=SimpleNamespace(__members__={"EXPLICIT_BATCH": 0}),
    BuilderFlag=SimpleNamespace(OBEY_PRECISION_CONSTRAINTS="obey"),
    float16=HALF,
    float32=SINGLE,
    ICastLayer=CastLayer,
)


@dataclass
class Network:
    layers: list[Layer]
    inputs: list[Any] = field(default_factory=lambda: [SimpleNamespace(name="x", dtype=SINGLE)])

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    @property
    def num_inputs(self) -> int:
        return len(self.inputs)

    def get_layer(self, index: int) -> Layer:
        return self.layers[index]

    def get_input(self, index: int) -> Any:
        return self.inputs[index]


def demanded(*layers: Layer) -> list[str]:
    """The precision of each layer, or "" where the builder chooses."""
    flags: list[str] = []
    demand_half(TRT, Network(list(layers)), SimpleNamespace(set_flag=flags.append))
    assert flags == ["obey"]
    return [layer.precision for layer in layers]


def to(dtype: str, given: str, output: str) -> Layer:
    return Layer("CAST", given, output, to_type=dtype)


def test_what_is_told_to_compute_in_fp16_and_in_fp32() -> None:
    layers = [Layer("CONVOLUTION", "x", "a"), Layer("ACTIVATION", "a", "b"), Layer("MATRIX_MULTIPLY", "b,w", "c")]
    assert demanded(*layers) == [HALF, "", HALF]
    layers = [Layer("CONVOLUTION", "x", "a"), to(HALF, "a", "b"), Layer("CONVOLUTION", "b", "c")]
    assert demanded(*layers) == [SINGLE, "", HALF], "what comes before the first cast is FP32"
    others = [Layer("CONSTANT", "", "w"), Layer("SHUFFLE", "w", "v"), Layer("SHAPE", "x", "s", INTEGER), to(INTEGER, "x", "i")]
    arithmetic = Layer("ELEMENTWISE", "i,s", "j", INTEGER)
    assert demanded(to(HALF, "x", "a"), Layer("CONVOLUTION", "a", "b"), *others, arithmetic) == ["", HALF, "", "", "", "", ""]
    flags = SimpleNamespace(__members__={"STRONGLY_TYPED": 1})  # later versions take types from the graph
    demand_half(SimpleNamespace(NetworkDefinitionCreationFlag=flags), None, None)


@pytest.mark.parametrize("kind", ["MATRIX_MULTIPLY", "ELEMENTWISE", "REDUCE", "UNARY", "SOFTMAX", "SHUFFLE"])
def test_what_a_mixed_graph_keeps_in_fp32_stays_there(kind: str) -> None:
    kept = Layer(kind, "d", "e")
    layers = (to(HALF, "x", "a"), Layer("MATRIX_MULTIPLY", "a,w", "b"), to(SINGLE, "b", "d"), kept, to(HALF, "e", "f"))
    assert demanded(*layers, Layer("ELEMENTWISE", "f,w", "g")) == ["", HALF, "", SINGLE, "", ""]
    assert kept.output_types == {0: SINGLE}


def test_a_missing_input_and_an_input_in_fp16() -> None:
    network = Network([Layer("SLICE", "x,,", "a")], [SimpleNamespace(name="x", dtype=HALF)])
    assert written_types(TRT, network) == {"x": HALF, "a": HALF}


def test_lab_04s_reference_is_bound_where_it_keeps_fp32() -> None:
    model = onnx.load_from_string(reference.serialized())
    inferred = onnx.shape_inference.infer_shapes(model).graph
    types = {value.name: value.type.tensor_type.elem_type for value in (*inferred.value_info, *inferred.output)}
    weights, layers = {value.name for value in model.graph.initializer}, []
    for node in model.graph.node:
        seen = SINGLE if types[node.output[0]] in (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16) else INTEGER
        given = ",".join("" if name in weights else name for name in node.input)
        wanted = next((HALF if a.i == onnx.TensorProto.FLOAT16 else SINGLE for a in node.attribute if a.name == "to"), "")
        layers.append(Layer(layer_type(node.op_type), given, node.output[0], seen, wanted if node.op_type == "Cast" else ""))
    network = Network(layers, [SimpleNamespace(name=model.graph.input[0].name, dtype=SINGLE)])
    demand_half(TRT, network, SimpleNamespace(set_flag=lambda flag: None))
    bound = {node.name for node, layer in zip(model.graph.node, layers, strict=True) if layer.precision == SINGLE}
    assert bound == set(reference.KEEP)
    assert [layer.precision for layer in layers].count(HALF) > len(reference.KEEP)
