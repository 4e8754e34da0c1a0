"""The lowered copy is faster on CPUs with VNNI, agrees with the original, and differs only where its module says so."""

import numpy as np
import pytest
from onnx import numpy_helper, parser

from course_lib import engines
from course_lib._util.cpu_int8 import VNNI
from course_lib.errors import BuildError, CourseError
from course_lib.models import fresh_digits
from course_lib.precision.casting import cast
from course_lib.precision.quantization.lowering import cpu_features, lower_for_onnxruntime, lowering_helps
from course_lib.precision.quantization.qdq import LOWERED, activations
from tests.exported import inputs, quantized
from tests.sessions import run

ISA = ("avx512_vnni",)


# ---- agreement


@pytest.mark.parametrize("name", ["small", pytest.param("wide", marks=pytest.mark.slow), "encoder"])
def test_every_digit_keeps_its_class(name: str) -> None:
    """450 held-out digits and 1000 fresh ones. Logits differ by a few steps of rounding. "wide" has the nodes of "small"."""
    fresh = fresh_digits(1000, seed=5)
    x = np.concatenate([inputs(name, "test"), fresh.tokens() if name == "encoder" else fresh.images])
    before, after = run(quantized(name), x), run(lower_for_onnxruntime(quantized(name), ISA), x)
    assert (after.argmax(1) == before.argmax(1)).mean() == 1.0
    assert np.abs(after - before).max() < (0.0 if name == "encoder" else 0.06 * np.abs(before).max()) + 1e-5


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


def test_tensorrt_rejects_a_lowered_copy() -> None:
    with pytest.raises(BuildError, match="lowered for ONNX Runtime"):
        engines.build(lower_for_onnxruntime(quantized("small"), ISA), backend="tensorrt_rtx")
