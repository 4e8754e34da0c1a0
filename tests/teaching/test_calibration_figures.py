"""Figures of lecture 6 say what the numbers are, and a single pair anywhere rounds as by hand."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

from course_lib.errors import CourseError
from course_lib.precision import StreamingHistogram, divergence, fake_quantize
from course_lib.precision.calibration.calibrators import without_zeros
from course_lib.teaching.int8 import candidate_figure, channel_figure, quality_map, quantize_tensor


@pytest.fixture(scope="module")
def histogram():
    counted = StreamingHistogram("t")
    counted.add(np.random.default_rng(0).exponential(1.0, 20_000))
    return counted.result()


def test_candidates_show_the_divergence_and_name_the_smallest(histogram):
    kept = [300, histogram.used]
    figure = candidate_figure(histogram, kept)
    counts = without_zeros(histogram)
    for axes, bins in zip(figure.axes, kept, strict=True):
        assert axes.texts[0].get_text().endswith(f"KL {divergence(counts, bins):.3g}")
    smallest = min(kept, key=lambda bins: divergence(counts, bins))
    assert f"{histogram.bin_width * smallest:.3g} has the smallest" in figure.get_suptitle()


def test_channels_count_the_steps_that_one_scale_leaves():
    weight = np.array([[[0.5, -0.1]], [[-2.0, 1.0]], [[1.0, 0.0]]])
    axes = channel_figure(weight, "layer").axes[0]
    assert [bar.get_height() for bar in axes.patches] == pytest.approx([127, 63.5, 31.75])
    assert "smallest range uses 32 of 127" in axes.get_title()


def test_the_map_names_the_method_with_the_best_worst_case():
    axes = quality_map({"clean": {"a": 30.0, "b": 25.0}, "broken": {"a": -3.0, "b": 20.0}}).axes[0]
    assert [text.get_text() for text in axes.texts] == ["30.0", "-3.0", "25.0", "20.0"]
    assert axes.get_title(loc="left") == "In its worst case b is the best of these: 20.0"


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
