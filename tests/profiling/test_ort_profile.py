"""Which nodes ONNX Runtime fused where: known by hand, against the graph that it saves, and by the values that flow through both."""

import tempfile
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper, parser

from course_lib._util.cpu_int8 import has_byte_dot_products, session_options
from course_lib.engines import Layer, LayerTable, LayerTensor
from course_lib.errors import BuildError, EngineError
from course_lib.precision import activations, cast, insert_qdq, lower_for_onnxruntime
from course_lib.profiling.readers.ort_nodes import fused_nodes
from course_lib.profiling.readers.ort_profile import _described, profile_onnxruntime
from tests.exported import exported

LEVELS = ("disabled", "basic", "all")
MODELS = ("small with BatchNorm", "small fp16", "small lowered", "encoder fp16", "encoder lowered")


@cache
def model(name: str) -> onnx.ModelProto:
    network, _, variant = name.partition(" ")
    if variant in ("", "with BatchNorm"):
        return exported(network, keep_batchnorm=bool(variant))
    if variant == "fp16":
        return cast(model(network), "fp16")
    ranges = {tensor: 2.0 + 0.1 * place for place, tensor in enumerate(activations(model(network)))}
    quantized = insert_qdq(model(network), ranges)
    return lower_for_onnxruntime(quantized, ["avx_vnni"]) if variant == "lowered" else quantized


def feeds(name: str) -> dict[str, np.ndarray]:
    x = np.random.default_rng(0)
    if name.startswith("encoder"):
        return {"tokens": x.normal(size=(2, 24, 32)).astype(np.float32)}
    return {"image": x.normal(size=(2, 1, 32, 32)).astype(np.float32)}


@cache
def profiled(name: str, level: Any) -> LayerTable:
    return profile_onnxruntime(model(name), feeds(name), level=level, runs=1)[0]


def saved(original: onnx.ModelProto, level: str) -> onnx.ModelProto:
    with tempfile.TemporaryDirectory() as folder:
        options = session_options()
        options.optimized_model_filepath = str(Path(folder, "saved.onnx"))
        wanted = {"disabled": "ORT_DISABLE_ALL", "all": "ORT_ENABLE_ALL"}.get(level, f"ORT_ENABLE_{level.upper()}")
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, wanted)
        onnxruntime.InferenceSession(original.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return onnx.load(options.optimized_model_filepath)


def holds(table: LayerTable) -> Counter[str]:
    return Counter(node for layer in table for node in layer.onnx_nodes)


# ---- the table


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", MODELS)
def test_one_row_for_each_node_of_the_saved_graph(name: str, level: Any) -> None:
    graph, table = saved(model(name), level).graph, profiled(name, level)
    named = Counter((node.name, node.op_type) for node in graph.node if node.name)
    assert Counter((layer.name, layer.kind) for layer in table) >= named
    assert Counter(layer.kind for layer in table) == Counter(node.op_type for node in graph.node)


@pytest.mark.instructions
def test_tensors_have_names_types_and_roles() -> None:
    table = profiled("small", "basic")
    conv, relu = table[0], table[1]
    assert conv.inputs[0].name == "image" and conv.inputs[0].shape == (2, 1, 32, 32)
    assert {(t.shape, t.dtype) for t in conv.weights} == {((16, 1, 3, 3), "Float"), ((16,), "Float")}
    assert conv.outputs[0].name == relu.inputs[0].name and not relu.constants
    assert {layer.tactic for layer in table} == {"CPUExecutionProvider"}
    assert profiled("encoder lowered", "all").dtype_counts()["UInt8"] >= 17  # one an integer matrix product


def test_a_row_whose_node_cannot_be_told_stays_as_the_profile_has_it() -> None:
    original = graph("(float[4] x) => (float[4] y, float[4] z) { [a] y = Exp(x) [b] z = Neg(x) }")
    other_order = graph("(float[4] x) => (float[4] y, float[4] z) { z = Neg(x) [a] y = Exp(x) }")
    rows = LayerTable(
        (Layer("a", "Exp", outputs=(LayerTensor("", (4,), "Float"),)), Layer("Neg_7", "Neg")), {"a": "Exp", "b": "Neg"}
    )
    known, unknown = _described(rows, original, other_order, {"x": np.zeros(4, np.float32)})
    assert known.onnx_nodes == ("a",) and [t.name for t in (*known.inputs, *known.outputs)] == ["x", "y"]
    assert unknown == rows[1]


# ---- which nodes: known by hand


def test_a_convolution_and_its_relu_share_a_kernel() -> None:
    fused = [layer for layer in profiled("small", "extended") if layer.kind == "FusedConv"]
    assert [layer.onnx_nodes for layer in fused] == [
        ("/stem+norm/Conv", "/Relu"),
        ("/block1/conv1+norm1/Conv", "/block1/Relu"),
        ("/block2/conv1+norm1/Conv", "/block2/Relu"),
        ("/block3/conv1+norm1/Conv", "/block3/Relu"),
    ]


@pytest.mark.parametrize("name", ["small", "small fp16"])
def test_at_the_highest_level_every_node_of_the_classifier_is_in_one_kernel(name: str) -> None:
    table = profiled(name, "all")
    assert set(holds(table)) == {node.name for node in model(name).graph.node} and set(holds(table).values()) == {1}
    if any(layer.outputs[0].format == "NCHWc" for layer in table):  # depends on the CPU
        held = {layer.onnx_nodes for layer in table}
        assert ("/block1/conv2+norm2/Conv", "/block1/Add", "/block1/Relu_1") in held
        assert ("/block2/shortcut/0+1/Conv",) in held and ("/block2/conv2+norm2/Conv", "/block2/Add", "/block2/Relu_1") in held
        assert [layer.kind for layer in table if not layer.onnx_nodes] == ["ReorderOutput"]


def test_a_batch_norm_is_inside_its_convolution() -> None:
    before, table = profiled("small with BatchNorm", "disabled"), profiled("small with BatchNorm", "basic")
    norms = {name for name, operator in before.operators.items() if operator == "BatchNormalization"}
    assert len(norms) == 9 and len(table) == len(before) - 9
    assert all(table.operators[layer.onnx_nodes[0]] == "Conv" for layer in table if norms & set(layer.onnx_nodes))
    assert norms <= set(holds(table))


def test_the_encoders_fusions() -> None:
    table = profiled("encoder", "all")
    fused = Counter(table.fused_operators(layer) for layer in table)
    assert fused["Add + Gelu"] == 4 and fused["Mul + Mul + MatMul"] == 4
    gelu = next(layer for layer in table if layer.kind == "BiasGelu")
    assert gelu.onnx_nodes == ("/blocks/0/up/Add", "/blocks/0/Gelu")
    assert set(holds(table)) == table.operators.keys() and set(holds(table).values()) == {1}


def test_a_function_that_was_taken_apart_is_in_all_its_parts() -> None:
    table = profiled("encoder fp16", "all")  # no CPU kernel for softmax in half precision
    parts = [layer.kind for layer in table if layer.onnx_nodes == ("/blocks/0/Softmax",)]
    assert parts == ["ReduceMax", "Sub", "Exp", "ReduceSum", "Div"]
    assert {layer.kind for layer in table if not layer.onnx_nodes} <= {"Cast", "Sqrt"}, "only what onnxruntime added"


@pytest.mark.instructions
def test_integer_kernels_hold_their_pairs() -> None:
    table = profiled("encoder lowered", "all")
    product = next(layer for layer in table if layer.name == "/embed/MatMul")
    weight = ("/embed/MatMul_constant_1/dequantize",)
    if not has_byte_dot_products():  # the kernel reads an unsigned copy of the weight, which is not a tensor of the graph
        weight = ("/embed/MatMul_constant_1/quantize", *weight)
    assert product.onnx_nodes == ("tokens/dequantize", *weight, "/embed/MatMul")
    quantized = [layer for layer in profiled("small lowered", "all") if layer.kind.startswith("QLinear")]
    for layer in quantized:
        operators = profiled("small lowered", "all").fused_operators(layer)
        assert operators.startswith("DequantizeLinear + ") and operators.endswith("QuantizeLinear")
        assert operators.count("Conv") + operators.count("Add") == 1


def graph(text: str) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20]> g {text}')


VECTOR = "(float[4] x) => (float[4] y)"
TWICE = VECTOR + " { [a] p = Exp(x) [b] q = Exp(x) [c] r = Neg(q) [d] y = Mul(p, r) }"
CONSTANT = "(float[2] x) => (float[2] y) <float[2] w = {1, 2}> { [k] v = Exp(w) [m] y = Mul(x, v) }"


@pytest.mark.parametrize(
    ("text", "level", "held"),
    [
        ("(float[8,4] x, float[8,4] z) => (float[8,3] y) <float[4,3] w = {1,2,3,4,5,6,7,8,9,10,11,12}, float[3] b = {1,2,3}> "
         "{ [sum] s = Add(x, z) [mm] m = MatMul(s, w) [bias] y = Add(m, b) }", "all", [("Add", "sum"), ("Gemm", "mm", "bias")]),
        (TWICE, "all", [("Exp", "a", "b"), ("Neg", "c"), ("Mul", "d")]),
        (TWICE, "disabled", [("Exp", "a"), ("Exp", "b"), ("Neg", "c"), ("Mul", "d")]),
        (VECTOR + " { [a] p = Exp(x) [i] q = Identity(p) [c] y = Neg(q) }", "all", [("Exp", "a"), ("Neg", "i", "c")]),
        (CONSTANT, "all", [("Mul", "m")]),  # what is computed while loading is in no kernel
        (CONSTANT, "disabled", [("Exp", "k"), ("Mul", "m")]),
        (VECTOR + " <float[1] w = {2}> { c = Constant<value = float[1] {2}>() [a] p = Add(x, c) [b] q = Add(x, w) "
         "[m] y = Mul(p, q) }", "all", [("Add", "a", "b"), ("Mul", "m")]),  # equal constants are one
    ],
)  # fmt: skip
def test_optimized_nodes_hold_original_ones(text: str, level: str, held: list[tuple[str, ...]]) -> None:
    original, after = graph(text), saved(graph(text), level)
    found = [(node.op_type, *nodes) for node, nodes in zip(after.graph.node, fused_nodes(original, after), strict=True)]
    assert Counter(found) == Counter(held)


TURNED = "(float[2,3,4] x) => (float[2,4,3] y)"
SOFT = "(float[2,3] x) => (float[2,3] y)"


@pytest.mark.parametrize(
    ("before", "after", "held"),
    [
        (VECTOR + " { [a] p = Exp(x) [b] y = Neg(p) }",
         "(float[4] u) => (float[4] v) { [c] t = Exp(u) [d] v = Neg(t) }", [(), ()]),
        # y is b and c, but which of the two nodes is which?
        (VECTOR + " { [a] p = Exp(x) [b] q = Neg(p) [c] y = Abs(q) }",
         VECTOR + " { [new] t = Exp(x) [odd] u = Cos(t) [fused] y = Abs(u) }", [("a",), (), ()]),
        # an added transpose may have taken over one of the originals; where there was none it cannot have
        (TURNED + " { [turn] p = Transpose<perm = [0, 2, 1]>(x) [n] y = Neg(p) }",
         TURNED + " { [added] q = Transpose<perm = [2, 0, 1]>(x) [fused] y = Neg(q) }", [(), ()]),
        (TURNED + " { [n] y = Neg(x) }",
         TURNED + " { [added] q = Transpose<perm = [2, 0, 1]>(x) [fused] y = Neg(q) }", [(), ("n",)]),
        # defaults that are spelled out change nothing
        (SOFT + " { [s] p = Softmax(x) [n] y = Neg(p) }",
         SOFT + " { [copy] q = Softmax<axis = -1>(x) [n] y = Neg(q) }", [("s",), ("n",)]),
        (SOFT + " { [s] p = Softmax(x) [n] y = Neg(p) }",
         SOFT + " { [copy] q = Softmax<axis = 0>(x) [n] y = Neg(q) }", [(), ("n",)]),
    ],
)  # fmt: skip
def test_a_node_that_cannot_be_told_stays_open(before: str, after: str, held: list[tuple[str, ...]]) -> None:
    assert fused_nodes(graph(before), graph(after)) == held


# ---- the whole call


def test_timings_belong_to_the_rows_of_the_table() -> None:
    table, timings = profile_onnxruntime(model("small"), feeds("small"), runs=5)
    assert timings.ms.shape == (5, len(table)) and timings.names == tuple(layer.name for layer in table)
    assert [time.layer for time in timings.layers()] == list(table)
    assert timings.total_ms > 0 and "Conv + Relu" in timings.by_operator()


def test_nodes_without_a_name_of_their_own_get_one() -> None:
    original = graph(VECTOR + " { p = Exp(x) [twin] q = Exp(p) [twin] y = Exp(q) }")
    table, _ = profile_onnxruntime(original, {"x": np.zeros(4, np.float32)}, runs=1)
    assert [layer.onnx_nodes for layer in table] == [("unnamed_0",), ("twin",), ("twin_2",)]
    assert [node.name for node in original.graph.node] == ["", "twin", "twin"], "the model is not changed"


def test_weights_in_the_graphs_inputs_are_weights() -> None:
    old = graph("(float[4] x, float[4] w) => (float[4] y) { [scale] y = Mul(x, w) }")
    old.graph.initializer.append(numpy_helper.from_array(np.arange(4, dtype=np.float32), "w"))
    table, _ = profile_onnxruntime(old, {"x": np.zeros(4, np.float32)}, runs=1)
    assert table[0].onnx_nodes == ("scale",) and [t.name for t in table[0].constants] == ["w"]


@pytest.mark.parametrize(
    ("wrong", "error", "says"),
    [
        (lambda tmp: profile_onnxruntime(tmp / "none.onnx", {}), BuildError, "none.onnx"),
        (lambda tmp: profile_onnxruntime(broken(tmp), {}), BuildError, "not an ONNX model"),
        (lambda tmp: profile_onnxruntime(onnx.ModelProto(), {}), BuildError, "rejects the model"),
        (lambda tmp: profile_onnxruntime(model("small"), {"picture": np.zeros(1)}), EngineError, "image"),
        (lambda tmp: profile_onnxruntime(model("small"), {"image": np.zeros((1, 1, 32, 32))}), EngineError, "double"),
        (lambda tmp: profile_onnxruntime(model("small"), {"image": np.zeros((1, 32), np.float32)}), EngineError, "rank"),
        (lambda tmp: profile_onnxruntime(model("small"), {}, level="fast"), ValueError, "extended"),  # type: ignore[arg-type]
        (lambda tmp: profile_onnxruntime(model("small"), {}, runs=0), ValueError, "runs >= 1"),
    ],
)
def test_a_wrong_call_says_what_is_wrong(
    wrong: Callable[[Path], Any], error: type[Exception], says: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=says) as raised:
        wrong(tmp_path)
    assert len(str(raised.value).splitlines()) == 1


def broken(folder: Path) -> Path:
    (folder / "broken.onnx").write_bytes(b"not a model")
    return folder / "broken.onnx"
