"""Calibration of real models: which tensors, which ranges, how fast, and what a cache may and may not be used for."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from course_lib.errors import CourseError
from course_lib.models import digits
from course_lib.precision import EntropyCalibrator, MinMaxCalibrator, calibrate, observe
from course_lib.precision.quantization.probe import quantizable
from tests.sessions import session

Feeds = list[dict[str, np.ndarray]]


def _batches(n: int = 64, size: int = 16, first: int = 0) -> Feeds:
    images = digits("train").images[first : first + n]
    return [{"image": images[i : i + size]} for i in range(0, n, size)]


def _values(path: Path, batches: Feeds, names: list[str]) -> dict[str, np.ndarray]:
    """What the tensors hold, with none of the course's code: one tensor at a time, onnxruntime without optimization."""
    model = onnx.load(path)
    there = {value.name for value in model.graph.output}
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in there | {"image"})
    opened = session(model, optimized=False)
    return {
        name: np.concatenate([feeds["image"] if name == "image" else opened.run([name], feeds)[0] for feeds in batches])
        for name in names
    }


# --- what is seen -------------------------------------------------------------------------------------------------------


def test_the_histograms_are_those_of_the_activations(small_onnx: Path) -> None:
    batches = _batches()
    seen = observe(small_onnx, batches, progress=False)
    expected = _values(small_onnx, batches, list(seen))
    for name, values in expected.items():
        tolerance = 1e-4 * max(seen[name].amax, 1)  # onnxruntime adds in another order when it optimizes
        assert seen[name].total == values.size
        assert seen[name].minimum == pytest.approx(values.min(), abs=tolerance)
        assert seen[name].maximum == pytest.approx(values.max(), abs=tolerance)
        theirs = np.cumsum(np.histogram(np.abs(values.astype(float)), seen[name].edges)[0])
        moved = np.abs(np.cumsum(seen[name].counts) - theirs).max()
        assert moved <= 0.001 * values.size, (name, moved)


def test_every_activation_around_a_quantized_operator_is_calibrated_and_no_weight(small_onnx: Path) -> None:
    model = onnx.load(small_onnx)
    ranges = calibrate(model, _batches(32), MinMaxCalibrator(), progress=False)
    weights = {value.name for value in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type in ("Conv", "Gemm", "Add"):
            assert {*node.input, *node.output} - weights <= ranges.keys()
    assert not weights & ranges.keys()
    assert "image" in ranges and "logits" in ranges and ranges["image"] == 1.0


def test_a_tensor_that_was_always_zero_gets_a_range(one_node: Callable[..., Any]) -> None:
    model, feeds = one_node("Add", [(1, 4), (1, 4)]), {f"x{i}": np.zeros((1, 4), np.float32) for i in range(2)}
    feeds["x1"] += 3
    ranges = calibrate(model, [feeds], EntropyCalibrator(), progress=False)
    assert dict(ranges) == {"x0": 1.0, "x1": 3.0, "y": 3.0}


# --- what goes wrong ----------------------------------------------------------------------------------------------------


def test_nan_names_the_tensor_and_files_that_are_no_models_are_rejected(small_onnx: Path, tmp_path: Path) -> None:
    batches = _batches()
    batches[2]["image"] = np.where(batches[2]["image"] > 0.9, np.nan, batches[2]["image"])
    for tensors in (None, ["logits"]):
        with pytest.raises(CourseError, match=f"'{tensors[0] if tensors else 'image'}' holds NaN"):
            observe(small_onnx, batches, tensors=tensors, progress=False)
    (tmp_path / "text.onnx").write_text("hello")
    for path, word in ((tmp_path / "none.onnx", "cannot be read"), (tmp_path / "text.onnx", "ONNX model|rejects")):
        with pytest.raises(CourseError, match=word):
            observe(path, _batches(), progress=False)


@pytest.mark.parametrize(
    ("batches", "word"),
    [
        ([], "no calibration batch"),
        ([{}], r"inputs \(image\), found none"),
        ([{"picture": np.zeros((1, 1, 32, 32), np.float32)}], r"inputs \(image\), found picture"),
        ([{"image": np.zeros((0, 1, 32, 32), np.float32)}], "no value was ever counted"),
        ([{"image": np.zeros((1, 1, 8), np.float32)}], "onnxruntime rejected a calibration batch"),
        ([{"image": np.zeros((1, 1, 32, 32), np.float64)}], "onnxruntime rejected a calibration batch"),
    ],
)
def test_batches_that_do_not_fit_are_rejected_in_one_line(small_onnx: Path, batches: Feeds, word: str) -> None:
    with pytest.raises(CourseError, match=word) as caught:
        observe(small_onnx, batches, progress=False)
    assert "\n" not in str(caught.value)


def test_integer_and_constant_tensors_are_left_out(one_node: Callable[..., Any]) -> None:
    from onnx import TensorProto, helper

    constant = helper.make_node("Constant", [], ["c"], value=helper.make_tensor("c", TensorProto.FLOAT, [4], [1.0] * 4))
    model = one_node("Add", [("n", 4)])
    model.graph.node[0].input.append("c")
    model.graph.node.insert(0, constant)
    model.graph.node.append(helper.make_node("Shape", ["y"], ["shape"]))
    model.graph.node.append(helper.make_node("Add", ["shape", "shape"], ["twice"]))
    assert quantizable(model) == ("x0", "y", "shape", "twice")
    feeds = [{"x0": np.ones((2, 4), np.float32)}]
    assert dict(calibrate(model, feeds, MinMaxCalibrator(), progress=False)) == {"x0": 1.0, "y": 2.0}
    for tensors, word in ((["twice"], "int64"), (["yy"], "is 'y' meant"), ([], "nothing to calibrate")):
        with pytest.raises(CourseError, match=word):
            observe(model, feeds, tensors=tensors, progress=False)
