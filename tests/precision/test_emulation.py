"""Emulated half precision is half precision: against numpy, ONNX Runtime's FP16 kernels and PyTorch's."""

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
import torch
from onnx import parser

from course_lib.models import encoder
from course_lib.models.digit_dataset import digits
from course_lib.precision import cast
from course_lib.precision.quantization.emulation import emulate
from tests.exported import exported
from tests.sessions import session

NUMPY: dict[str, Any] = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16}


def run(model: onnx.ModelProto, **feeds: np.ndarray) -> np.ndarray:
    return np.asarray(session(model).run(None, feeds)[0])


def toy(body: str, head: str = "g (float[n, 8] x) => (float[n, 8] y)", opset: int = 22) -> onnx.ModelProto:
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]> {head} {{ {body} }}')
    for place, node in enumerate(model.graph.node):
        node.name = f"{node.op_type}_{place}"
    return model


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_every_tensor_is_rounded_and_nothing_else_is(dtype: Any) -> None:
    model = toy("a = Exp (x)  b = Mul (a, a)  c = Sub (b, x)  y = Div (c, a)")
    x = np.random.default_rng(0).normal(0, 1, (64, 8)).astype(np.float32)

    def half(value: np.ndarray) -> np.ndarray:
        return value.astype(NUMPY[dtype]).astype(np.float32)

    h = half(x)
    a = half(np.exp(h))
    expected = half(half(half(a * a) - h) / a)
    found = run(emulate(cast(model, dtype)), x=x)
    # numpy's exp and ONNX Runtime's differ in the last bit of float32: at a border between two half numbers that is a whole step
    assert (found == expected).mean() > 0.98
    np.testing.assert_allclose(found, expected, rtol=4 * 2.0 ** -(11 if dtype == "fp16" else 8), atol=1e-2)
    np.testing.assert_array_equal(run(emulate(cast(toy("y = Relu (x)"), dtype)), x=x), half(np.maximum(x, 0)))
    large = np.full((1, 8), 300.0, np.float32)  # 90 000, beyond 65 504
    rounded = run(emulate(cast(toy("a = Mul (x, x)  y = Sqrt (a)"), dtype)), x=large)
    np.testing.assert_allclose(rounded, np.inf if dtype == "fp16" else large, rtol=0.01)


@pytest.mark.parametrize(
    ("body", "weight"),
    [
        ("y = MatMul (x, w)", (8, 8)),
        ("y = Gemm (x, w)", (8, 8)),
        ("y = Add (x, w)", (8,)),
        ("y = Mul (x, w)", (8,)),
        ("y = LayerNormalization (x, w)", (8,)),
    ],
)
def test_onnx_runtimes_own_fp16_kernel_with_a_weight_gives_the_same(body: str, weight: tuple[int, ...]) -> None:
    typed = f"g (float16[n, 8] x, float16{list(weight)} w) => (float16[n, 8] y) {{ {body} }}"
    _agrees(parser.parse_model(f'<ir_version: 10, opset_import: ["" : 22]> {typed}'), (16, 8), weight)


def _agrees(model: onnx.ModelProto, *shapes: tuple[int, ...]) -> None:
    """FP16 in and out, so that ONNX Runtime has to round: at most one step of FP16 apart, for another order of summing."""
    rng = np.random.default_rng(0)
    feeds = {name: np.abs(rng.normal(0, 1, shape)).astype(np.float16) for name, shape in zip("xw", shapes, strict=False)}
    real, emulated = run(model, **feeds), run(emulate(model), **feeds)
    assert emulated.dtype == np.float16 and len(emulate(model).graph.node) > 1
    assert np.isfinite(real).all() and (np.abs(real - emulated) <= np.spacing(np.abs(real))).all()


def test_a_whole_encoder_errs_as_much_as_in_pytorchs_half_precision() -> None:
    """ONNX Runtime leaves roundings out where it casts up anyway, and would promise a quarter of this error."""
    network, tokens = encoder(), digits("test").tokens()[:32]
    model = exported("encoder")
    exact = run(model, tokens=tokens)
    with torch.no_grad():
        half = network.half()(torch.tensor(tokens).half()).float().numpy()
    emulated = run(emulate(cast(model, "fp16")), tokens=tokens)
    errors = [float(np.linalg.norm(found - exact)) for found in (half, emulated)]
    assert 0.67 < errors[1] / errors[0] < 1.5


def test_only_casts_touch_half_tensors_and_names_survive() -> None:
    model = cast(toy("a = Relu (x)  b = Neg (a)  c = Exp (a)  y = Add (b, c)"), "bf16", keep=["Exp_2"])
    emulated = emulate(model)
    onnx.checker.check_model(emulated, full_check=True)
    types = {value.name: value.type.tensor_type.elem_type for value in emulated.graph.value_info}
    for node in emulated.graph.node:
        if node.op_type != "Cast":
            assert onnx.TensorProto.BFLOAT16 not in {types.get(name) for name in (*node.input, *node.output)}
    before = {value.name: value.type.tensor_type.elem_type for value in model.graph.value_info}
    assert {name: types[name] for name in before} == before
    assert [n.name for n in emulated.graph.node if n.op_type == "Exp"] == ["Exp_2"]
    assert sum(node.name == "a/wide" for node in emulated.graph.node) == 1  # read twice, widened once
    assert [node.op_type for node in emulate(toy("y = Relu (x)")).graph.node] == ["Relu"]  # nothing half, nothing to do
