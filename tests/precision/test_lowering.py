"""The lowered copy is faster on CPUs with VNNI, agrees with the original, and differs only where its module says so."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper, parser

from course_lib import engines
from course_lib._util.cpu_int8 import VNNI, session_options
from course_lib.benchmark import compare
from course_lib.errors import BuildError, CourseError
from course_lib.models import digits, fresh_digits
from course_lib.precision.casting import cast
from course_lib.precision.quantization.lowering import cpu_features, lower_for_onnxruntime, lowering_helps
from course_lib.precision.quantization.qdq import LOWERED, activations, insert_qdq, scale_of
from tests.exported import exported

ISA = ("avx512_vnni",)
needs_vnni = pytest.mark.skipif(not lowering_helps(), reason="this CPU has no VNNI or AMX: lowering is not for it")


@cache
def quantized(name: str) -> onnx.ModelProto:
    """Q/DQ with min-max ranges of 128 training digits."""
    model = exported(name)
    source, inner = model.graph.input[0].name, onnx.ModelProto()
    inner.CopyFrom(model)
    watched = [tensor for tensor in activations(model) if tensor != source]
    inner.graph.output.extend(onnx.ValueInfoProto(name=tensor) for tensor in watched)
    x = _images(name, digits("train"))[:128]
    values = [x, *_session(inner).run(watched, {source: x})]
    return insert_qdq(model, {tensor: float(np.abs(v).max()) for tensor, v in zip([source, *watched], values, strict=True)})


def _images(name: str, data: Any) -> np.ndarray:
    return data.tokens() if name == "encoder" else data.images


def _session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(model.SerializeToString(), session_options(), providers=["CPUExecutionProvider"])


def _logits(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    session, source = _session(model), model.graph.input[0].name
    return np.concatenate([session.run(["logits"], {source: x[start : start + 64]})[0] for start in range(0, len(x), 64)])


# ---- agreement


@pytest.mark.parametrize("name", ["small", pytest.param("wide", marks=pytest.mark.slow), "encoder"])
def test_every_digit_keeps_its_class(name: str) -> None:
    """450 held-out digits and 1000 fresh ones. Logits differ by a few steps of rounding. "wide" has the nodes of "small"."""
    x = np.concatenate([_images(name, digits("test")), _images(name, fresh_digits(1000, seed=5))])
    before = _logits(quantized(name), x)
    for round_sums, largest in ((False, 0.03), (True, 0.06)):
        after = _logits(lower_for_onnxruntime(quantized(name), ISA, round_sums=round_sums), x)
        assert (after.argmax(1) == before.argmax(1)).mean() == 1.0
        assert np.abs(after - before).max() < (0.0 if name == "encoder" else largest * np.abs(before).max()) + 1e-5


def _through_a_pair(activation: str, x: np.ndarray, amax: float) -> tuple[np.ndarray, np.ndarray]:
    """What a tensor becomes in a pair behind `activation`, before and after lowering; a 1x1 convolution by 1 reads it."""
    model = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17]>
        g (float[n, 1, 1, m] x) => (float[n, 1, 1, m] y) <float[1, 1, 1, 1] w = {{1}}> {{
            a = {activation} (x)
            y = Conv (a, w)
        }}"""
    )
    narrow = insert_qdq(model, {"a": amax})
    lowered = lower_for_onnxruntime(narrow, ISA)
    before, after = (_session(m).run(None, {"x": x.reshape(1, 1, 1, -1)})[0].ravel() for m in (narrow, lowered))
    return before, after


def test_a_shifted_pair_is_the_same_number() -> None:
    x = np.linspace(-30, 30, 4001, dtype=np.float32)
    before, after = _through_a_pair("Neg", x, 10.0)
    np.testing.assert_allclose(after, before, rtol=1e-6)
    assert before.min() == pytest.approx(-128 / 127 * 10) and before.max() == pytest.approx(10)


def test_behind_a_relu_only_saturation_differs() -> None:
    """The documented (a): up to the calibrated range equal, beyond it clipped at 255 steps instead of 127."""
    x = np.linspace(-30, 30, 4001, dtype=np.float32)
    before, after = _through_a_pair("Relu", x, 10.0)
    calibrated = x <= 127.5 * scale_of(10.0)
    np.testing.assert_allclose(after[calibrated], before[calibrated], rtol=1e-6, atol=1e-6)
    assert before.max() == pytest.approx(10) and after.max() == pytest.approx(255 / 127 * 10)


def test_rounding_a_sum_clips_nothing_and_costs_half_a_step() -> None:
    """The documented (c): the range of the new pair follows from those around it; checked on sums that fill all of it."""
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (float[n, 1, 4, 4] x, float[n, 1, 4, 4] shortcut) => (float[n, 1, 4, 4] y)
        <float[1, 1, 1, 1] w = {1}, float[1, 1, 1, 1] v = {1}> {
            c = Conv (x, w)
            r = Relu (shortcut)
            s = Add (c, r)
            a = Relu (s)
            y = Conv (a, v)
        }"""
    )
    rng = np.random.default_rng(0)
    x, shortcut = rng.uniform(-20, 20, (2, 200, 1, 4, 4)).astype(np.float32)
    narrow = insert_qdq(model, {"x": 20.0, "r": 6.0, "a": 9.0})
    assert [node.op_type for node in narrow.graph.node if "c/" in node.name] == []
    plain, rounded = (lower_for_onnxruntime(narrow, ISA, round_sums=on) for on in (False, True))
    constants = {i.name: numpy_helper.to_array(i) for i in rounded.graph.initializer}
    inside = shortcut <= 6  # beyond its range the shortcut itself saturates, which is (a)
    results = [_session(m).run(None, {"x": x, "shortcut": shortcut})[0] for m in (plain, rounded)]
    inside &= results[0] <= 9
    assert constants["c/scale"] == pytest.approx((9 + 6) / 254)
    assert np.abs(results[1] - results[0])[inside].max() <= constants["c/scale"] / 2 + float(scale_of(9.0)) + 1e-5
    assert (results[1][results[0] > 9] > 9 - constants["c/scale"]).all()


# ---- speed


@needs_vnni
@pytest.mark.parametrize(("name", "at_least"), [("small", 1.4), ("wide", 1.4)])
def test_it_is_faster_than_the_model_it_was_made_from(name: str, at_least: float) -> None:
    models = {"qdq": quantized(name), "lowered": lower_for_onnxruntime(quantized(name))}
    loaded = {key: engines.load(engines.build(model, backend="onnxruntime")) for key, model in models.items()}
    rng = np.random.default_rng(0)
    x = digits("test").images
    result = compare(
        loaded, lambda: {"image": x[rng.integers(len(x), size=1)]}, baseline="qdq", half_width=0.05, time_limit_s=4.0
    )
    assert result.speedups["lowered"].low > at_least


# ---- when, and for whom


def test_without_vnni_the_model_stays() -> None:
    model = quantized("small")
    assert lower_for_onnxruntime(model, isa=["avx2", "avx512f"]) is model
    assert not lowering_helps(["avx2"]) and not lowering_helps([]) and all(lowering_helps([name]) for name in VNNI)
    assert lowering_helps() == bool(VNNI & cpu_features())


def test_the_copy_is_marked_and_the_original_untouched() -> None:
    model = quantized("small")
    before = model.SerializeToString()
    lowered = lower_for_onnxruntime(model, ISA)
    assert model.SerializeToString() == before != lowered.SerializeToString()
    assert {entry.key: entry.value for entry in lowered.metadata_props} == {LOWERED: "onnxruntime"}
    kinds = {numpy_helper.to_array(i).dtype.name for i in lowered.graph.initializer if i.name.startswith("lowered/")}
    assert kinds == {"uint8"}
    for rejects in (lambda: lower_for_onnxruntime(lowered, ISA), lambda: cast(lowered, "fp16"), lambda: activations(lowered)):
        with pytest.raises(CourseError, match="lowered for ONNX Runtime"):
            rejects()


def test_a_float_model_has_nothing_to_lower() -> None:
    with pytest.raises(CourseError, match="no Q/DQ pairs"):
        lower_for_onnxruntime(
            parser.parse_model('<ir_version: 8, opset_import: ["" : 17]> g (float x) => (float y) {y = Abs (x)}'), ISA
        )


def test_a_pair_that_also_leaves_the_graph_stays_signed() -> None:
    model = onnx.ModelProto()
    model.CopyFrom(quantized("small"))
    model.graph.output.append(onnx.helper.make_tensor_value_info("image/quantize", onnx.TensorProto.INT8, ["batch", 1, 32, 32]))
    lowered = lower_for_onnxruntime(model, ISA)
    node = next(node for node in lowered.graph.node if node.name == "image/quantize")
    assert node.input[2] == "image/zero_point"


def test_tensorrt_rejects_a_lowered_copy() -> None:
    with pytest.raises(BuildError, match="lowered for ONNX Runtime"):
        engines.build(lower_for_onnxruntime(quantized("small"), ISA), backend="tensorrt_rtx")
