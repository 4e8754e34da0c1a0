"""TensorRT 8.6 takes precision from flags and layers, not from the graph: what the course demands of its layers."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import onnx
import pytest

from course_lib.engines.backends.tensorrt.config import _demand_half
from course_lib.labs.lab04_mixed_precision import reference
from course_lib.standin.trt.network import layer_type

HALF, SINGLE, INTEGER = "half", "single", "int32"
TRT = SimpleNamespace(BuilderFlag=SimpleNamespace(OBEY_PRECISION_CONSTRAINTS="obey"), float16=HALF, float32=SINGLE)


@dataclass
class Layer:
    kind: str
    dtype: str
    precision: str = ""
    output_types: dict[int, str] = field(default_factory=dict)

    @property
    def type(self) -> Any:
        return SimpleNamespace(name=self.kind)

    def get_output(self, index: int) -> Any:
        return SimpleNamespace(dtype=self.dtype)

    def set_output_type(self, index: int, dtype: str) -> None:
        self.output_types[index] = dtype


def demanded(*layers: Layer) -> list[str]:
    """The precision of each layer, or "" where the builder chooses."""
    flags: list[str] = []
    network = SimpleNamespace(num_layers=len(layers), get_layer=lambda index: layers[index])
    _demand_half(TRT, network, SimpleNamespace(set_flag=flags.append))
    assert flags == ["obey"]
    return [layer.precision for layer in layers]


def test_a_graph_in_fp32_is_told_to_multiply_in_fp16() -> None:
    layers = [Layer("CONVOLUTION", SINGLE), Layer("ACTIVATION", SINGLE), Layer("MATRIX_MULTIPLY", SINGLE)]
    assert demanded(*layers) == [HALF, "", HALF]


@pytest.mark.parametrize("kind", ["MATRIX_MULTIPLY", "ELEMENTWISE", "REDUCE", "UNARY", "SOFTMAX"])
def test_what_a_mixed_graph_keeps_in_fp32_stays_there(kind: str) -> None:
    kept = Layer(kind, SINGLE)
    assert demanded(Layer("MATRIX_MULTIPLY", HALF), kept, Layer("ELEMENTWISE", HALF)) == [HALF, SINGLE, ""]
    assert kept.output_types == {0: SINGLE}


def test_casts_constants_and_integers_are_left_alone() -> None:
    others = [Layer("CAST", SINGLE), Layer("CONSTANT", SINGLE), Layer("SHUFFLE", SINGLE), Layer("ELEMENTWISE", INTEGER)]
    assert demanded(Layer("CONVOLUTION", HALF), *others) == [HALF, "", "", "", ""]


def test_lab_04s_reference_is_bound_where_it_keeps_fp32() -> None:
    model = onnx.shape_inference.infer_shapes(onnx.load_from_string(reference.serialized()))
    types = {value.name: value.type.tensor_type.elem_type for value in (*model.graph.value_info, *model.graph.output)}
    known = {onnx.TensorProto.FLOAT: SINGLE, onnx.TensorProto.FLOAT16: HALF}
    layers = [Layer(layer_type(node.op_type), known.get(types[node.output[0]], INTEGER)) for node in model.graph.node]
    found = demanded(*layers)
    names = [node.name for node in model.graph.node]
    assert {name for name, precision in zip(names, found, strict=True) if precision == SINGLE} == set(reference.KEEP)
    assert found.count(HALF) > len(reference.KEEP)
