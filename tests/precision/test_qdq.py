"""Q/DQ pairs stand where TensorRT wants them, compute what they should, and become INT8 kernels."""

from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from onnx import TensorProto, helper, numpy_helper, parser
from onnx.reference import ReferenceEvaluator

from course_lib import engines
from course_lib.benchmark import sqnr_db
from course_lib.errors import CourseError
from course_lib.precision.quantization.lowering import lower_for_onnxruntime
from course_lib.precision.quantization.qdq import fake_quantize, insert_qdq, scale_of
from tests.exported import exported, inputs, min_max, quantized, recipe_for
from tests.sessions import run

MODELS = [("small", None), ("encoder", None), ("small", 17)]


def kernel_of(plan: engines.Plan, node: str, kind: str) -> Any:
    """The kernel of one kind that absorbed `node`."""
    return next(layer for layer in plan.layers.kernels if node in layer.onnx_nodes and layer.kind == kind)


# ---- the arithmetic of a pair

amaxes = st.floats(0.125, 2.0**20, width=32)  # below, the reference implementation overflows its own 32-bit integers
tensors = arrays(np.float32, st.integers(1, 40), elements=st.floats(-(2.0**20), 2.0**20, width=32))


@given(tensors, amaxes, st.integers(2, 12))
def test_a_pair_keeps_values_within_half_a_step_and_clips_the_rest(x: np.ndarray, amax: float, bits: int) -> None:
    step = float(scale_of(amax, bits))
    y = fake_quantize(x, amax, bits).astype(np.float64)
    limit = 2 ** (bits - 1)
    assert y.dtype == np.float64 and (y >= -limit * step * (1 + 1e-6)).all() and (y <= amax * (1 + 1e-6)).all()
    inside = (x <= amax) & (x >= -amax)
    assert (np.abs(y - x)[inside] <= step / 2 + 1e-6 * np.abs(x)[inside] + 1e-6 * step).all()
    np.testing.assert_array_equal(fake_quantize(y, amax, bits), y.astype(np.float32))  # rounding twice changes nothing


@given(tensors, amaxes)
def test_a_pair_is_what_the_onnx_reference_computes(x: np.ndarray, amax: float) -> None:
    (found,) = _REFERENCE.run(None, {"x": x, "scale": scale_of(amax), "zero": np.int8(0)})
    np.testing.assert_array_equal(fake_quantize(x, amax), found)


_REFERENCE = ReferenceEvaluator(
    parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 20]> pair (float[n] x, float scale, int8 zero) => (float[n] y) {
            q = QuantizeLinear (x, scale, zero)
            y = DequantizeLinear (q, scale, zero)
        }"""
    )
)


def test_a_pair_in_onnx_runtime() -> None:
    x = np.random.default_rng(0).normal(0, 2, (4, 1, 5, 5)).astype(np.float32)
    x.flat[:6] = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 300.0]) / 4  # halves go to even
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 13]> g (float[n, 1, 5, 5] x) => (float[n, 1, 5, 5] y)
            <float[1, 1, 1, 1] w = {1}> { [conv] y = Conv (x, w) }"""
    )
    found = run(insert_qdq(model, {"x": 127 / 4}), x, optimized=False)
    np.testing.assert_allclose(found, fake_quantize(x, 127 / 4), rtol=1e-6)
    assert (4 * found.flat[:6]).tolist() == [0, 2, 2, 0, -2, 127]


@pytest.mark.parametrize("amax", [0.0, -1.0, np.nan, np.inf, 1e-45, 1e39])
def test_ranges_that_no_scale_fits(amax: float) -> None:
    with pytest.raises(CourseError, match="positive and finite"):
        fake_quantize([1.0], amax)


@given(arrays(np.float32, (3, 4), elements=st.floats(-100, 100, width=32)))
def test_a_weight_has_a_scale_for_each_output_channel(weight: np.ndarray) -> None:
    for transposed in (0, 1):
        model = insert_qdq(_gemm(weight.T if transposed else weight, transposed), {"x": 1.0})
        (node,) = [node for node in model.graph.node if node.name == "w/quantize"]
        scales = numpy_helper.to_array(next(i for i in model.graph.initializer if i.name == "w/scale"))
        assert helper.get_node_attr_value(node, "axis") == (0 if transposed else 1)
        amax = np.abs(weight).max(axis=0)
        np.testing.assert_array_equal(
            scales, np.where(amax < 127 * np.finfo(np.float32).tiny, np.float32(1), amax) / np.float32(127)
        )


def _gemm(weight: np.ndarray, transposed: int = 0, opset: int = 20) -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "w"], ["y"], name="gemm", transB=transposed)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", weight.shape[transposed]])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", weight.shape[1 - transposed]])],
        [numpy_helper.from_array(np.ascontiguousarray(weight), "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


# ---- where pairs stand


@pytest.mark.parametrize(("name", "opset"), MODELS)
def test_pairs_stand_on_weighted_inputs_and_shortcuts_only(name: str, opset: int | None) -> None:
    model = quantized(name, opset)
    nodes, made = model.graph.node, {output: node for node in model.graph.node for output in node.output}
    constants = {constant.name: numpy_helper.to_array(constant) for constant in model.graph.initializer}
    weighted = [n for n in exported(name, opset).graph.node if n.op_type in ("Conv", "Gemm") or _by_weight(n, constants)]
    assert len(weighted) == (18 if name == "encoder" else 10)
    for node in (node for node in nodes if node.name in {original.name for original in weighted}):
        assert [made[i].op_type for i in node.input[:2]] == ["DequantizeLinear"] * 2
        assert all(i in constants for i in node.input[2:])  # biases are left alone
    for node in nodes:
        if node.op_type == "Relu":
            assert made[node.input[0]].op_type != "DequantizeLinear"
        if node.op_type == "QuantizeLinear":
            assert constants[node.input[2]].dtype == np.int8 and not constants[node.input[2]].any()
            assert node.name == f"{node.input[0]}/quantize"
    readers = {i: node for node in nodes for i in node.input if node.op_type not in ("QuantizeLinear", "DequantizeLinear")}
    adds = [node.name for value, node in readers.items() if node.op_type == "Add" and value.endswith("/dequantize")]
    assert adds == ([] if name == "encoder" else ["/block1/Add", "/block2/Add", "/block3/Add"])
    assert all(made[output.name].op_type == "Gemm" for output in model.graph.output)


def _by_weight(node: onnx.NodeProto, constants: dict[str, np.ndarray]) -> bool:
    return node.op_type == "MatMul" and node.input[1] in constants


def test_the_shortcut_is_what_gets_rounded() -> None:
    """Of two convolutions the one in the shorter path; without a projection, the tensor that the block began with."""
    adds = {node.name: list(node.input) for node in quantized("small").graph.node if node.op_type == "Add"}
    assert adds["/block1/Add"] == ["/block1/conv2+norm2/Conv_output_0", "/Relu_output_0/dequantize"]
    assert adds["/block2/Add"] == ["/block2/conv2+norm2/Conv_output_0", "/block2/shortcut/0+1/Conv_output_0/dequantize"]


def test_a_tensor_with_several_readers_has_one_pair_and_the_input_model_is_untouched() -> None:
    before = exported("small").SerializeToString()
    names = [node.name for node in insert_qdq(exported("small"), min_max("small")).graph.node]
    assert len(names) == len(set(names)) and names.count("/block1/Relu_1_output_0/quantize") == 1
    assert exported("small").SerializeToString() == before


# ---- numbers


@pytest.mark.parametrize(("name", "opset"), [("small", None), ("small", 17)])
def test_numbers_agree_with_a_fake_quantized_torch_network(name: str, opset: int | None) -> None:
    """An independent reading of the same scheme: torch computes, numpy rounds."""
    import torch
    from torch.nn.functional import conv2d, linear, relu

    amax, x = min_max(name, opset), inputs(name, "test")[:16]
    weights = {i.name: numpy_helper.to_array(i) for i in exported(name, opset).graph.initializer}
    nodes = {node.output[0]: node for node in exported(name, opset).graph.node}
    shortcuts = {"/block1/Add": "/Relu_output_0"}

    def rounded(tensor: str) -> torch.Tensor:
        return torch.from_numpy(fake_quantize(value(tensor).numpy(), amax[tensor]))

    @cache
    def value(tensor: str) -> torch.Tensor:
        if tensor == "image":
            return torch.from_numpy(x)
        node = nodes[tensor]
        if node.op_type == "Relu":
            return relu(value(node.input[0]))
        if node.op_type == "ReduceMean":
            return value(node.input[0]).mean((2, 3))
        if node.op_type == "Add":
            shortcut = shortcuts.get(node.name) or next(i for i in node.input if "shortcut" in i)
            (main,) = set(node.input) - {shortcut}
            return value(main) + rounded(shortcut)
        weight, bias = weights[node.input[1]], torch.from_numpy(weights[node.input[2]].copy())
        channels = np.abs(weight).max(axis=tuple(range(1, weight.ndim)), keepdims=True)
        weight = torch.from_numpy(fake_quantize(weight, channels))
        if node.op_type == "Gemm":
            return linear(rounded(node.input[0]), weight, bias)
        stride, padding = (helper.get_node_attr_value(node, key)[0] for key in ("strides", "pads"))
        return conv2d(rounded(node.input[0]), weight, bias, stride, padding)

    # Sums in another order differ in the last bit, and a value on a border between two steps then takes the other one. The
    # optimizer is off because it also rounds biases (to 32 bits), which moves uniform background across such borders.
    found = run(quantized(name, opset), x, optimized=False)
    assert sqnr_db(value("logits").numpy(), found) > 60
    fused = run(quantized(name, opset), x)
    assert sqnr_db(found, fused) > 40


# ---- what the compiler makes of it


@pytest.mark.parametrize(("name", "opset"), MODELS[:2])
def test_tensorrt_builds_int8_kernels(name: str, opset: int | None, rtx: engines.Compiler) -> None:
    plan = rtx.build(quantized(name, opset), recipe_for(name, "int8"))
    weighted = [node.name for node in exported(name, opset).graph.node if node.op_type in ("Conv", "Gemm")]
    if name == "encoder":
        weighted += [node for node in plan.layers.operators if node.endswith(("up/MatMul", "qkv/MatMul"))]
    for node in weighted:
        kernel = kernel_of(plan, node, "gemm" if "MatMul" in node or "Gemm" in node else "correlation")
        assert {tensor.dtype for tensor in kernel.inputs} == {"Int8"}, kernel
    kinds = {"correlation", "gemm"}
    integer = [layer for layer in plan.layers.kernels if layer.kind in kinds and layer.inputs[0].dtype == "Int8"]
    assert len(integer) == (18 if name == "encoder" else 10)


def test_an_excluded_node_stays_float(rtx: engines.Compiler) -> None:
    model = insert_qdq(exported("wide"), min_max("wide"), exclude=["/stem+norm/Conv", "/head/Gemm"])
    assert "image/quantize" not in {node.name for node in model.graph.node}
    plan = rtx.build(model, recipe_for("wide", "int8"))
    for node in ("/stem+norm/Conv", "/head/Gemm"):
        touching = [layer for layer in plan.layers.kernels if node in layer.onnx_nodes]
        assert touching and all("Int8" not in {t.dtype for t in layer.inputs} for layer in touching[:1])
    assert sum("Int8" in {t.dtype for t in layer.inputs} for layer in plan.layers.kernels if layer.kind == "correlation") == 8


# ---- what is rejected


def test_a_tensor_without_a_range_is_named() -> None:
    amax = {name: value for name, value in min_max("small").items() if name != "/block1/Relu_output_0"}
    with pytest.raises(
        CourseError, match=r"no range for tensor '/block1/Relu_output_0', which node '/block1/conv2\+norm2/Conv'"
    ):
        insert_qdq(exported("small"), amax)
    insert_qdq(exported("small"), amax, exclude=["/block1/conv2+norm2/Conv"])


def test_other_rejections() -> None:
    with pytest.raises(CourseError, match="'/nonsense', which the model does not have"):
        insert_qdq(exported("small"), min_max("small"), exclude=["/nonsense"])
    with pytest.raises(CourseError, match="pairs already"):
        insert_qdq(quantized("small"), min_max("small"))
    with pytest.raises(CourseError, match="lowered for ONNX Runtime"):
        insert_qdq(lower_for_onnxruntime(quantized("small"), isa=["avx_vnni"]), min_max("small"))
    with pytest.raises(CourseError, match=r"opset 12.*version_converter"):
        insert_qdq(_gemm(np.ones((3, 4), np.float32), opset=12), {"x": 1.0})
    with pytest.raises(CourseError, match="nothing to quantize"):
        insert_qdq(_gemm(np.ones((3, 4), np.float32)), {"x": 1.0}, exclude=["gemm"])
    broken = np.ones((3, 4), np.float32)
    broken[0, 0] = np.nan
    with pytest.raises(CourseError, match=r"'w'.*range nan"):
        insert_qdq(_gemm(broken), {"x": 1.0})
