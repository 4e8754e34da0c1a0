"""INT8 layers counted on real layer tables: TensorRT for RTX here, TensorRT 8.6 as recorded on an H200."""

import gzip

import onnx
import pytest

from course_lib.benchmark.records import RESULTS
from course_lib.engines import Layer, LayerTable, LayerTensor, build
from course_lib.engines.backends.tensorrt.layer_sources import parse_inspector
from course_lib.precision import activations, insert_qdq
from course_lib.profiling.layer_tables.dtypes import int8_layers, weights, weights_in_layers

RECORDED = RESULTS / "tensorrt86_h200"


def test_each_convolution_counts_once_in_the_networks_order(small_onnx, service_recipe):
    model = onnx.load(small_onnx)
    layers = [node.name for node in model.graph.node if node.op_type in ("Conv", "Gemm")]
    quantized = insert_qdq(
        model, dict.fromkeys((*activations(model), *activations(model, exclude=layers[4:6])), 4.0), exclude=layers[4:6]
    )
    plan = build(quantized, service_recipe.model_copy(update={"precision": "int8"}), backend="tensorrt_rtx")
    assert int8_layers(plan.layers) == ([*layers[:4], *layers[6:]], layers[4:6])


@pytest.mark.parametrize(("name", "integer", "floating"), [("r50_int8", 54, 0), ("r50_fp16", 0, 54)])
def test_recorded_on_a_gpu_where_activations_have_no_type(name, integer, floating):
    """ResNet-50 has 54 layers with weights; fused with its pooling, the first one has them under another key."""
    table = parse_inspector(gzip.decompress((RECORDED / f"{name}.json.gz").read_bytes()).decode())
    assert tuple(map(len, int8_layers(table))) == (integer, floating)


def x(dtype: str) -> LayerTensor:
    return LayerTensor("x", (1, 8), dtype)


def w(dtype: str, *shape: int) -> LayerTensor:
    return LayerTensor("w", shape or (8, 8), dtype)


def kernel(name: str, kind: str, reads: tuple[LayerTensor, ...], holds: tuple[LayerTensor, ...], *nodes: str) -> Layer:
    return Layer(name, kind, reads, holds, onnx_nodes=nodes)


ROUNDS = kernel("__myl_MulRoun_myl2_0", "kgen", (x("Int8"),), (), "fc")
OWN = kernel("one", "correlation", (x("Int8"),), (w("Int8"),), "tiny")
GRAPH = {"conv": "Conv", "add": "Add", "fc": "Gemm", "tiny": "Conv", "one": "Conv"}
COUNTED = {  # kernels, and the layers that count as INT8 and as float
    "products of TensorRT 10 and 11, without listed weights": ([ROUNDS, kernel("fc", "gemm", (x("Int8"),), (), "fc")], ["fc"], []),
    "a product in half precision": ([ROUNDS, kernel("fc", "CaskGemmConvolution", (x("Half"),), (), "fc")], [], ["fc"]),
    "an INT8 shortcut": ([kernel("k", "correlation", (x("Float"), x("Int8")), (w("Float"),), "conv", "add")], [], ["conv"]),
    "an INT8 constant is added": ([kernel("k", "kgen", (x("Float"), x("Int8")), (x("Int8"),), "conv", "add")], [], ["conv"]),
    "a float layer with the name of another's kernel": (
        [OWN, kernel("k", "correlation", (x("Float"),), (w("Float"),), "one")], ["tiny"], ["one"]
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", COUNTED)
def test_a_layer_counts_by_what_multiplies_its_weights(what):
    kernels, integer, floating = COUNTED[what]
    graph = {node: GRAPH[node] for one in kernels for node in one.onnx_nodes}
    assert int8_layers(LayerTable(tuple(kernels), graph)) == (integer, floating)


def test_without_a_graph_the_names_of_kernels_serve(small_plan):
    assert int8_layers(LayerTable((OWN,))) == (["one"], [])
    integer, floating = int8_layers(small_plan.layers)
    assert (integer, len(floating)) == ([], 10)


def test_weights_that_multiply_outside_of_layers_show_it_is_another_network(small_plan):
    """A float network beside tiny INT8 convolutions: every layer that is counted is INT8, and hardly holds a weight."""
    assert weights_in_layers(small_plan.layers) / weights(small_plan.layers) > 0.95
    tiny = kernel("tiny", "correlation", (x("Int8"),), (w("Int8", 2, 2),), "conv")
    for hidden, operator in (
        (kernel("einsum", "gemm", (x("Int8"),), (w("Float", 64, 64),), "other"), "Einsum"),
        (kernel("einsum", "gemm", (x("Int8"),), (w("Float", 1, 4096),), "other"), "Einsum"),
        (kernel("expanded", "kgen", (), (w("Int8", 64, 64),), "other"), "DequantizeLinear"),  # an INT8 copy of float weights
    ):
        table = LayerTable((tiny, hidden), {"conv": "Conv", "other": operator})
        assert int8_layers(table) == (["conv"], []) and (weights(table), weights_in_layers(table)) == (4100, 4)
