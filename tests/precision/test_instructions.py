"""INT8 answers do not depend on the processor's instructions. `make no-vnni-test` runs these on an emulated CPU without VNNI."""

import platform

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper, parser

from course_lib._util import cpu_int8
from course_lib._util.cpu_int8 import VNNI, has_byte_dot_products
from course_lib.benchmark import sqnr_db
from course_lib.models import digits
from course_lib.precision import MSECalibrator, activations, insert_qdq, lower_for_onnxruntime, observe
from course_lib.teaching.int8 import quantize_tensor
from tests.exported import exported
from tests.sessions import run

pytestmark = pytest.mark.instructions

PRODUCT = parser.parse_model(
    '<ir_version: 8, opset_import: ["" : 17]> g (uint8[1, 64] x) => (int32[1, 16] y) { y = MatMulInteger(x, w) }'
)


def product(options: onnxruntime.SessionOptions) -> int:
    """The sum of 64 products, each 255 times 127, as a session finds it."""
    model = onnx.ModelProto()
    model.CopyFrom(PRODUCT)
    model.graph.initializer.append(numpy_helper.from_array(np.full((64, 16), 127, np.int8), "w"))
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return int(session.run(None, {"x": np.full((1, 64), 255, np.uint8)})[0][0, 0])


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the kernels that saturate are for x86")
def test_the_flags_say_whether_onnx_runtimes_fast_kernels_saturate() -> None:
    """Also what `make no-vnni-test` rests on: there the instructions really are hidden, from the flags and from the kernels."""
    exact = 64 * 255 * 127
    assert (product(onnxruntime.SessionOptions()) == exact) == has_byte_dot_products()
    assert product(cpu_int8.session_options()) == exact


def test_the_entry_is_set_where_kernels_would_saturate_and_only_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def entry() -> str:
        return cpu_int8.session_options().get_session_config_entry(cpu_int8.PRECISE_INT8)

    monkeypatch.setattr("course_lib._util.cpu_int8.cpu_features", lambda: frozenset({"avx2", "avx512f"}))
    assert entry() == "1"
    for name in VNNI:
        monkeypatch.setattr("course_lib._util.cpu_int8.cpu_features", lambda name=name: frozenset({"avx2", name}))
        with pytest.raises(RuntimeError):
            entry()


def test_every_variant_of_lecture_6_answers_as_unfused_arithmetic_does() -> None:
    """Unfused, a pair is computed in float, which no instruction changes. Fused, INT8 may round differently, no more."""
    network = exported("small")
    train, images = digits("train").images, digits("test").images[:8]
    seen = observe(network, [{"image": train[:50]}], progress=False)
    ranges = seen.ranges(MSECalibrator())
    quantized = insert_qdq(network, {tensor: ranges[tensor] for tensor in activations(network)})
    before_relu = "/block1/conv1+norm1/Conv_output_0"
    variants = {
        "by the table": quantized,
        "a pair before a ReLU": quantize_tensor(quantized, before_relu, seen[before_relu].amax),
        "the output quantized": quantize_tensor(quantized, "logits", seen["logits"].amax),
        "one Conv left in float": insert_qdq(network, ranges, exclude=["/block2/conv1+norm1/Conv"]),
        "lowered": lower_for_onnxruntime(quantized, ["avx_vnni"]),
    }
    found = {name: sqnr_db(*answers(variant, images)) for name, variant in variants.items()}
    assert min(found.values()) > 30, found


def test_the_encoder_answers_as_unfused_arithmetic_does() -> None:
    network, tokens = exported("encoder"), digits("train").tokens()
    amax = observe(network, [{"tokens": tokens[:50]}], tensors=activations(network), progress=False).ranges(MSECalibrator())
    for model in (insert_qdq(network, amax), lower_for_onnxruntime(insert_qdq(network, amax), ["avx_vnni"])):
        assert sqnr_db(*answers(model, digits("test").tokens()[:4])) > 30


def answers(model: onnx.ModelProto, x: np.ndarray) -> list[np.ndarray]:
    """What a model answers without any optimization, and as the course's engines run it."""
    return [run(model, x, optimized=optimized) for optimized in (False, True)]
