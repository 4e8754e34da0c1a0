"""Ranges of a model's tensors against numbers that can be computed by hand."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from course_lib.benchmark.observed_ranges import value_ranges
from course_lib.errors import CourseError, EngineError


@pytest.fixture
def square() -> onnx.ModelProto:
    """y = x * x, and its logarithm."""
    nodes = [helper.make_node("Mul", ["x", "x"], ["y"], name="/square"), helper.make_node("Log", ["y"], ["z"], name="/log")]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in ("x", "z")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def test_what_overflows_and_what_is_lost(square):
    before = square.SerializeToString()
    found = value_ranges(square, {"x": np.array([1e-5, -0.5, 2.0, 300.0], np.float32)})
    assert [row.node for row in found.rows] == ["x", "/square", "/log"]
    row = found.rows[1]
    assert (row.smallest, row.median, row.largest) == pytest.approx((1e-10, (0.25 + 4) / 2, 90_000), rel=1e-5)
    assert (row.beyond, row.lost) == (0.25, 0.25)
    assert found.overflowing == ("/square",)
    assert square.SerializeToString() == before


def test_another_format_holds_other_numbers(square):
    feeds = {"x": np.array([30.0, 2.0], np.float32)}
    assert value_ranges(square, feeds, "BF16").overflowing == ()
    assert value_ranges(square, feeds, "FP8 E4M3").overflowing == ("/square",)  # 900 > 448


def test_the_figure_names_the_nodes_that_it_draws(square):
    found = value_ranges(square, {"x": np.array([300.0, 2.0], np.float32)})
    drawn = found.plot(["/square"])
    assert [label.get_text() for label in drawn.axes[0].get_yticklabels()] == ["/square"]
    assert drawn.get_suptitle() == "1 of 3 tensors hold numbers beyond FP16"
    assert "50 % overflow" in [text.get_text() for text in drawn.axes[0].texts]


def test_zeros_have_no_range(square):
    with pytest.raises(CourseError, match="'/log' is not finite even in float32"):
        value_ranges(square, {"x": np.zeros(2, np.float32)})
    assert value_ranges(square, {"x": np.ones(2, np.float32)}).rows[2].largest == 0.0  # the logarithm of 1


def test_what_it_rejects(square):
    with pytest.raises(ValueError, match="no format"):
        value_ranges(square, {"x": np.ones(2, np.float32)}, "FP12")
    with pytest.raises(EngineError, match="rejected a batch"):
        value_ranges(square, {"wrong": np.ones(2, np.float32)})
