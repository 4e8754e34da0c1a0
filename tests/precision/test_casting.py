"""Cast graphs build half-precision kernels, keep what is to be kept, and compute nearly the same."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from course_lib import engines
from course_lib.errors import CourseError
from course_lib.precision.casting import cast
from course_lib.precision.quantization.qdq import activations, insert_qdq
from tests.exported import exported, recipe_for
from tests.sessions import run

PROOF = {"fp16": "Half", "bf16": "BFloat16"}
KEPT = ("/blocks/1/norm1/LayerNormalization", "/blocks/2/up/MatMul", "/blocks/2/up/Add", "/blocks/2/Gelu")


def casts(model: onnx.ModelProto) -> list[str]:
    return [node.name for node in model.graph.node if node.op_type == "Cast"]


def toy(body: str, constants: str = "") -> onnx.ModelProto:
    return parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 20]> g (float[n, 4] x) => (float[n, 4] y) <{constants}> {{ {body} }}'
    )


# ---- what the compiler makes of it


@pytest.mark.parametrize(("name", "opset", "dtype"), [("small", None, "bf16"), ("encoder", 17, "fp16")])
def test_every_matrix_product_is_half(name: str, opset: int | None, dtype: Any, rtx: engines.Compiler) -> None:
    model = cast(exported(name, opset), dtype)
    plan = rtx.build(model, recipe_for(name, dtype))
    counts = plan.layers.dtype_counts()
    assert counts["Float"] <= 2 and counts[PROOF[dtype]] == len(plan.layers.kernels) - 1  # the first casts the input
    for kernel in plan.layers.kernels[1:]:
        if {"Conv", "Gemm", "MatMul"} & {plan.layers.operators.get(node) for node in kernel.onnx_nodes}:
            assert PROOF[dtype] in kernel.dtypes
    for value in (*model.graph.input, *model.graph.output):
        assert value.type.tensor_type.elem_type == TensorProto.FLOAT


def test_it_is_the_graph_that_torch_exports_in_half_precision(rtx: engines.Compiler) -> None:
    name = "encoder"
    ours, theirs = cast(exported(name), "fp16"), exported(name, dtype="fp16")
    assert sorted(n.op_type for n in ours.graph.node) == sorted(n.op_type for n in theirs.graph.node)
    kernels = [sorted(layer.kind for layer in rtx.build(m, recipe_for(name, "fp16")).layers.kernels) for m in (ours, theirs)]
    assert kernels[0] == kernels[1]
    x = np.random.default_rng(0).normal(size=(4, 32, 32)).astype(np.float32)
    exact, found, expected = run(exported(name), x), run(ours, x), run(theirs, x)
    assert np.abs(found - exact).max() < 2 * np.abs(expected - exact).max() + 1e-3 * np.abs(exact).max()


@pytest.mark.parametrize("dtype", ["bf16"])
def test_kept_nodes_compute_in_float(dtype: Any, rtx: engines.Compiler) -> None:
    plan = rtx.build(cast(exported("encoder"), dtype, keep=KEPT), recipe_for("encoder", dtype))
    (product,) = [layer for layer in plan.layers.kernels if "/blocks/2/up/MatMul" in layer.onnx_nodes]
    assert {t.dtype for t in (*product.inputs, *product.weights)} == {"Float"}
    others = [layer for layer in plan.layers.kernels if "/blocks/3/up/MatMul" in layer.onnx_nodes]
    assert others and all("Float" not in layer.dtypes for layer in others)


def test_int8_pairs_survive_and_the_rest_is_half(rtx: engines.Compiler) -> None:
    narrow = insert_qdq(exported("encoder"), dict.fromkeys(activations(exported("encoder")), 8.0))
    plan = rtx.build(cast(narrow, "fp16"), recipe_for("encoder", "int8"))
    integer = [layer for layer in plan.layers.kernels if layer.kind == "gemm" and layer.inputs[0].dtype == "Int8"]
    assert len(integer) == 18
    assert not [layer for layer in plan.layers.kernels if layer.kind == "gemm" and "Float" in {t.dtype for t in layer.inputs}]


# ---- the graph itself


def test_casts_stand_at_borders_only_and_each_tensor_has_one() -> None:
    assert casts(cast(exported("small"), "fp16")) == ["image/to_fp16", "logits/to_fp32"]
    model = cast(toy("a = Relu (x)  b = Neg (a)  c = Exp (a)  d = Add (b, c)  y = Tanh (d)"), "fp16")
    assert casts(model) == ["x/to_fp16", "y/to_fp32"]
    names = toy("a = Relu (x)  b = Neg (a)  c = Exp (a)  d = Add (b, c)  y = Tanh (d)")
    for node in names.graph.node:
        node.name = node.op_type
    kept = cast(names, "fp16", keep=["Neg", "Exp", "Add"])  # neighbors: nothing between them
    assert casts(kept) == ["x/to_fp16", "a/to_fp32", "d/to_fp16", "y/to_fp32"]
    assert casts(cast(names, "fp16", keep=["Relu", "Neg", "Exp", "Add", "Tanh"])) == []


def test_operators_without_a_half_form_and_fixed_inputs_stay_float() -> None:
    model = cast(toy('y = Resize <mode = "nearest"> (x, , scales)', "float[2] scales = {1.0, 1.0}"), "fp16")
    assert {i.name: i.data_type for i in model.graph.initializer} == {"scales": TensorProto.FLOAT}
    assert casts(model) == ["x/to_fp16", "y/to_fp32"]
    random = cast(toy("z = RandomNormalLike (x)  a = Mul (z, c)  y = Add (a, x)", "float[1] c = {0.0}"), "fp16")
    x = np.ones((2, 4), np.float32)
    np.testing.assert_array_equal(run(random, x), x)


def test_weights_are_stored_in_the_type_that_reads_them() -> None:
    keep = ["/head/Gemm"]
    types = {i.name: i.data_type for i in cast(exported("small"), "fp16", keep=keep).graph.initializer}
    assert types["stem.weight"] == TensorProto.FLOAT16 and types["head.weight"] == TensorProto.FLOAT
    body = toy("a = Mul (x, c)  y = Add (a, c)", "float[4] c = {1, 2, 3, 4}")
    body.graph.node[0].name = "kept"
    both = {i.name: i.data_type for i in cast(body, "fp16", keep=["kept"]).graph.initializer}
    assert both == {"c": TensorProto.FLOAT, "c/to_fp16": TensorProto.FLOAT16}
    assert len(cast(exported("small"), "fp16").SerializeToString()) < 0.55 * len(exported("small").SerializeToString())


def test_bf16_needs_a_newer_opset() -> None:
    model = cast(exported("small", 17), "bf16")
    assert model.opset_import[0].version == 22 and model.ir_version >= 10
    assert [n.name for n in model.graph.node if n.op_type == "Conv"] == [
        n.name for n in exported("small", 17).graph.node if n.op_type == "Conv"
    ]


# ---- what is rejected


def with_weight(value: float) -> onnx.ModelProto:
    model = toy("a = Relu (x)  y = Mul (a, w)", "float[4] w = {0, 0, 0, 0}")
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.array([1, -value, 2, np.inf], np.float32), "w"))
    model.graph.node[1].name = "multiply"
    return model


def test_a_weight_beyond_fp16_is_named_or_kept() -> None:
    with pytest.raises(CourseError, match=r"weight 'w' of node 'multiply' holds 7e\+04, beyond .* fp16 \(65504\)"):
        cast(with_weight(7e4), "fp16")
    for model in (cast(with_weight(7e4), "fp16", keep=["multiply"]), cast(with_weight(7e4), "bf16")):
        assert all(np.isfinite(numpy_helper.to_array(i).astype(np.float32)[:3]).all() for i in model.graph.initializer)
    cast(with_weight(65519.0), "fp16")  # rounds down to the largest number


def _weights_elsewhere(model: onnx.ModelProto) -> None:
    (weight,) = model.graph.initializer
    weight.ClearField("float_data")
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="nowhere.bin")


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda model: model.graph.ClearField("initializer"), "input 'w'"),
        (lambda model: model.ClearField("opset_import"), "opset_import"),
        (lambda model: model.Clear(), "ir_version"),
        (_weights_elsewhere, r"nowhere\.bin"),
    ],
)
def test_an_invalid_model_is_one_clear_line(spoil: Any, said: str, dtype: Any) -> None:
    model = toy("y = Mul (x, w)", "float[4] w = {1, 2, 3, 4}")
    spoil(model)
    with pytest.raises(CourseError, match=f"not a valid ONNX model: .*{said}") as raised:
        cast(model, dtype)
    assert len(str(raised.value).splitlines()) == 1


def test_other_rejections() -> None:
    with pytest.raises(CourseError, match=r"\['fp16'\]"):
        cast(exported("small"), ["fp16"])  # type: ignore[arg-type]
    with pytest.raises(CourseError, match="'int8'"):
        cast(exported("small"), "int8")  # type: ignore[arg-type]
    with pytest.raises(CourseError, match="'/nonsense', which the model does not have"):
        cast(exported("small"), "fp16", keep=["/nonsense"])
    unknown = parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 20, "mine" : 1]> g (float[4] x) => (float[4] y)
            { [m] z = mine.Mystery (x) [r] y = Relu (z) }"""
    )
    with pytest.raises(CourseError, match=r"type of 'z', which node 'm'"):
        cast(unknown, "fp16")
    unknown.graph.value_info.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, [4]))
    assert casts(cast(unknown, "fp16")) == ["z/to_fp16", "y/to_fp32"]
    branched = parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 20]> g (float[4] x, bool c) => (float[4] y) {
            y = If (c) <then_branch = t () => (float[4] p) { p = Relu (x) }, else_branch = e () => (float[4] q) { q = Neg (x) }>
        }"""
    )
    with pytest.raises(CourseError, match="subgraphs"):
        cast(branched, "fp16")
