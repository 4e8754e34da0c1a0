"""INT8 layers counted on real layer tables: TensorRT for RTX here, TensorRT 8.6 as recorded on an H200."""

from __future__ import annotations

import gzip

import onnx
import pytest

from course_lib.benchmark.records import RESULTS
from course_lib.engines import Layer, LayerTable, LayerTensor, build
from course_lib.engines.backends.tensorrt.layer_sources import parse_inspector
from course_lib.precision import activations, insert_qdq
from course_lib.profiling.layer_tables.layer_precision import int8_layers, weights, weights_in_layers

RECORDED = RESULTS / "tensorrt86_h200"


def test_each_convolution_counts_once_in_the_networks_order(small_onnx, service_recipe):
    model = onnx.load(small_onnx)
    layers = [node.name for node in model.graph.node if node.op_type in ("Conv", "Gemm")]
    quantized = insert_qdq(
        model, dict.fromkeys((*activations(model), *activations(model, exclude=layers[4:6])), 4.0), exclude=layers[4:6]
    )
    plan = build(quantized, service_recipe.model_copy(update={"precision": "int8"}), backend="tensorrt_rtx")
    assert int8_layers(plan.layers) == ([*layers[:4], *layers[6:]], layers[4:6])


def test_float_plan_has_none(small_plan):
    integer, floating = int8_layers(small_plan.layers)
    assert (integer, len(floating)) == ([], 10)


@pytest.mark.parametrize(("name", "integer", "floating"), [("r50_int8", 54, 0), ("r50_fp16", 0, 54)])
def test_recorded_on_a_gpu_where_activations_have_no_type(name, integer, floating):
    """ResNet-50 has 54 layers with weights; fused with its pooling, the first one has them under another key."""
    table = parse_inspector(gzip.decompress((RECORDED / f"{name}.json.gz").read_bytes()).decode())
    assert tuple(map(len, int8_layers(table))) == (integer, floating)


@pytest.mark.parametrize(("dtype", "integer"), [("Int8", True), ("Half", False)])
@pytest.mark.parametrize("kind", ["gemm", "CaskGemmConvolution"])
def test_products_of_tensorrt_10_and_11_are_counted_without_listed_weights(kind, dtype, integer):
    product = Layer("fc_myl2_1", kind, (LayerTensor("x", (1, 8), dtype),), onnx_nodes=("fc",))
    rounds = Layer("__myl_MulRoun_myl2_0", "kgen", (LayerTensor("x", (1, 8), "Int8"),), onnx_nodes=("fc",))
    expected = (["fc"], []) if integer else ([], ["fc"])
    assert int8_layers(LayerTable((rounds, product), {"fc": "Gemm"})) == expected


def test_float_kernel_that_adds_an_int8_shortcut_is_float():
    weight, activation = LayerTensor("w", (8, 8), "Float"), LayerTensor("x", (1, 8), "Float")
    kernel = Layer(
        "k", "correlation", (activation, LayerTensor("shortcut", (1, 8), "Int8")), (weight,), onnx_nodes=("conv", "add")
    )
    assert int8_layers(LayerTable((kernel,), {"conv": "Conv", "add": "Add"})) == ([], ["conv"])


def test_names_of_kernels_are_no_names_of_layers():
    """A float layer can have the name of another layer's INT8 kernel."""
    x, w = LayerTensor("x", (1, 8), "Int8"), LayerTensor("w", (8, 8), "Int8")
    own = Layer("one", "correlation", (x,), (w,), onnx_nodes=("tiny",))
    wide = Layer(
        "k", "correlation", (LayerTensor("x", (1, 8), "Float"),), (LayerTensor("w", (8, 8), "Float"),), onnx_nodes=("one",)
    )
    assert int8_layers(LayerTable((own, wide), {"tiny": "Conv", "one": "Conv"})) == (["tiny"], ["one"])
    assert int8_layers(LayerTable((own,))) == (["one"], [])


@pytest.mark.parametrize("kind", ["kgen", "correlation"])
def test_the_end_of_a_float_layer_with_int8_numbers_is_no_int8_layer(kind):
    """What it reads is INT8, and so is a constant that it adds; the layer's own weights are not."""
    shortcut, added = LayerTensor("shortcut", (1, 8), "Int8"), LayerTensor("added", (1, 8), "Int8")
    constants = (added, LayerTensor("w", (8, 8), "Float")) if kind == "correlation" else (added,)
    end = Layer("k", kind, (LayerTensor("x", (1, 8), "Float"), shortcut), constants, onnx_nodes=("conv", "add"))
    assert int8_layers(LayerTable((end,), {"conv": "Conv", "add": "Add"})) == ([], ["conv"])


def test_weights_that_multiply_outside_of_layers_show_it_is_another_network(small_plan):
    """A float network of Einsums beside tiny INT8 convolutions: every layer that is counted is INT8, and hardly holds a weight."""
    assert weights_in_layers(small_plan.layers) / weights(small_plan.layers) > 0.95
    x, small = LayerTensor("x", (1, 8), "Int8"), LayerTensor("w", (2, 2), "Int8")
    tiny = Layer("tiny", "correlation", (x,), (small,), onnx_nodes=("conv",))
    for shape in ((64, 64), (1, 4096)):
        hidden = Layer("einsum", "gemm", (x,), (LayerTensor("all", shape, "Float"),), onnx_nodes=("einsum",))
        table = LayerTable((tiny, hidden), {"conv": "Conv", "einsum": "Einsum"})
        assert int8_layers(table) == (["conv"], []) and (weights(table), weights_in_layers(table)) == (4100, 4)


def test_weights_that_a_kernel_without_inputs_expands_are_in_no_layer():
    """An INT8 copy of a float network's weights is not what the tiny layers beside it multiply."""
    x, small = LayerTensor("x", (1, 8), "Int8"), LayerTensor("w", (2, 2), "Int8")
    tiny = Layer("tiny", "correlation", (x,), (small,), onnx_nodes=("conv",))
    expanded = Layer("expanded", "kgen", (), (LayerTensor("all", (64, 64), "Int8"),), onnx_nodes=("dequantize",))
    table = LayerTable((tiny, expanded), {"conv": "Conv", "dequantize": "DequantizeLinear"})
    assert (weights(table), weights_in_layers(table)) == (4100, 4)
