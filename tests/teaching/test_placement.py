"""A single pair anywhere, against the same rounding done by hand."""

import numpy as np
import onnx
import onnxruntime
import pytest

from course_lib.errors import CourseError
from course_lib.precision import fake_quantize
from course_lib.teaching.int8 import quantize_tensor

TEXT = """<ir_version: 10, opset_import: ["" : 20]>
g (float[4] x) => (float[4] y, float[4] z) { h = Neg(x)  y = Relu(h)  z = Add(h, h) }"""
X = np.array([-0.9, -0.301, 0.5, 3.0], np.float32)


@pytest.fixture
def model():
    return onnx.parser.parse_model(TEXT)


def run(model):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(["y", "z"], {"x": X})


def test_all_readers_of_a_tensor_get_its_rounded_copy(model):
    before = model.SerializeToString()
    y, z = run(quantize_tensor(model, "h", 1.0))
    rounded = fake_quantize(-X, 1.0)
    np.testing.assert_array_equal(y, np.maximum(rounded, 0))
    np.testing.assert_array_equal(z, 2 * rounded)
    assert model.SerializeToString() == before


def test_rejects_what_it_cannot_place(model):
    with pytest.raises(CourseError, match="no node of the model writes the tensor 'x'"):
        quantize_tensor(model, "x", 1.0)
    with pytest.raises(CourseError, match="'h' has a pair already"):
        quantize_tensor(quantize_tensor(model, "h", 1.0), "h", 1.0)
    with pytest.raises(CourseError, match="range 0 cannot be quantized"):
        quantize_tensor(model, "h", 0.0)
