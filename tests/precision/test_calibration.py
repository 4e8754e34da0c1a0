"""Calibration of real models: which tensors, which ranges, how fast, and what a cache may and may not be used for."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from course_lib.errors import CourseError
from course_lib.models import digits
from course_lib.precision import (
    EntropyCalibrator,
    MinMaxCalibrator,
    Observation,
    PercentileCalibrator,
    Ranges,
    calibrate,
    observe,
)
from course_lib.precision.quantization.probe import Probe, quantizable

Feeds = list[dict[str, np.ndarray]]


def _batches(n: int = 64, size: int = 16, first: int = 0) -> Feeds:
    images = digits("train").images[first : first + n]
    return [{"image": images[i : i + size]} for i in range(0, n, size)]


def _values(path: Path, batches: Feeds, names: list[str]) -> dict[str, np.ndarray]:
    """What the tensors hold, with none of the course's code: one tensor at a time, onnxruntime without optimization."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    model = onnx.load(path)
    there = {value.name for value in model.graph.output}
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in there | {"image"})
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return {
        name: np.concatenate([feeds["image"] if name == "image" else session.run([name], feeds)[0] for feeds in batches])
        for name in names
    }


def _same(left: Observation, right: Observation) -> bool:
    return list(left) == list(right) and all(
        np.array_equal(left[name].counts, right[name].counts)
        and (left[name].bin_width, left[name].minimum, left[name].maximum)
        == (right[name].bin_width, right[name].minimum, right[name].maximum)
        for name in left
    )


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
    assert not weights & ranges.keys() and ranges.samples == 32
    assert len(ranges.model_sha256) == len(ranges.data_sha256) == 64
    assert "image" in ranges and "logits" in ranges and ranges["image"] == 1.0


def test_relus_are_derived_and_come_out_as_if_they_were_counted(small_onnx: Path) -> None:
    model = onnx.load(small_onnx)
    probe = Probe.of(model, None, 2048)
    assert probe.rectified, "the shortcut is not taken on the very model that it is for"
    relus = list(probe.rectified)
    together = observe(model, _batches(), progress=False)
    alone = observe(model, _batches(), tensors=relus, progress=False)  # without their inputs they must be counted
    assert not Probe.of(model, relus, 2048).rectified
    for name in relus:
        # another set of outputs is another fusion for onnxruntime: the last bit of a value may differ, and so its bin
        assert together[name].bin_width == alone[name].bin_width and together[name].minimum == alone[name].minimum == 0
        assert together[name].amax == pytest.approx(alone[name].amax, rel=1e-6)
        moved = np.abs(np.cumsum(together[name].counts) - np.cumsum(alone[name].counts)).max()
        assert moved <= 1e-4 * alone[name].total, (name, moved)


def test_a_tensor_that_was_always_zero_gets_a_range_and_a_note(one_node: Callable[..., Any]) -> None:
    model, feeds = one_node("Add", [(1, 4), (1, 4)]), {f"x{i}": np.zeros((1, 4), np.float32) for i in range(2)}
    feeds["x1"] += 3
    ranges = calibrate(model, [feeds], EntropyCalibrator(), progress=False)
    assert dict(ranges) == {"x0": 1.0, "x1": 3.0, "y": 3.0}
    assert any("'x0' was always zero" in note for note in ranges.notes)


# --- the result ---------------------------------------------------------------------------------------------------------


def test_ranges_are_frozen_deterministic_and_survive_json(small_onnx: Path) -> None:
    first, second = (calibrate(small_onnx, _batches(), EntropyCalibrator(), progress=False) for _ in range(2))
    assert first == second and dict(first) == dict(second)
    again = Ranges.from_json(first.to_json())
    assert again == first and list(again) == list(first) and again.calibrator == "EntropyCalibrator()"
    with pytest.raises(TypeError):
        first.amax["image"] = 2.0  # type: ignore[index]
    with pytest.raises(FrozenInstanceError):
        first.samples = 3  # type: ignore[misc]
    document = json.loads(first.to_json())
    document["amax"]["image"] = -1
    for text in ("", "[]", "{}", json.dumps(document)):
        with pytest.raises(CourseError, match="calibrate again"):
            Ranges.from_json(text)


# --- what goes wrong ----------------------------------------------------------------------------------------------------


def test_nan_names_the_tensor(small_onnx: Path) -> None:
    batches = _batches()
    batches[2]["image"] = np.where(batches[2]["image"] > 0.9, np.nan, batches[2]["image"])
    with pytest.raises(CourseError, match="'image' holds NaN"):
        observe(small_onnx, batches, progress=False)
    with pytest.raises(CourseError, match="'logits' holds NaN"):
        observe(small_onnx, batches, tensors=["logits"], progress=False)


@pytest.mark.parametrize(
    ("batches", "word"),
    [
        ([], "no calibration batch"),
        ([{}], "samples"),
        ([{"picture": np.zeros((1, 1, 32, 32), np.float32)}], r"inputs \(image\), found picture"),
        ([{"image": np.zeros((0, 1, 32, 32), np.float32)}], "samples"),
        ([{"image": np.zeros((1, 1, 8), np.float32)}], "onnxruntime rejected a calibration batch"),
        ([{"image": np.zeros((1, 1, 32, 32), np.float64)}], "onnxruntime rejected a calibration batch"),
    ],
)
def test_batches_that_do_not_fit_are_rejected_in_one_line(small_onnx: Path, batches: Feeds, word: str) -> None:
    with pytest.raises(CourseError, match=word) as caught:
        observe(small_onnx, batches, progress=False)
    assert "\n" not in str(caught.value)


def test_files_that_are_no_models_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "text.onnx").write_text("hello")
    for path, word in ((tmp_path / "none.onnx", "cannot be read"), (tmp_path / "text.onnx", "ONNX model|rejects")):
        with pytest.raises(CourseError, match=word):
            observe(path, _batches(), progress=False)


# --- the cache ----------------------------------------------------------------------------------------------------------

RUN = """
import sys, time
from tests.precision.test_calibration import _batches
from course_lib.precision import observe
class Slow:
    def __init__(self): self.passes = 0
    def __iter__(self):
        self.passes += 1
        for feeds in _batches(320, 8):
            if self.passes > 1: time.sleep(0.05)
            yield feeds
observe(sys.argv[1], Slow(), progress=False, cache=sys.argv[2], save_seconds=0)
"""


def test_a_killed_calibration_goes_on_where_it_was(small_onnx: Path, tmp_path: Path) -> None:
    cache = tmp_path / "calibration.npz"
    process = subprocess.Popen([sys.executable, "-c", RUN, str(small_onnx), str(cache)], cwd=Path(__file__).parents[2])
    while not cache.exists() and process.poll() is None:
        time.sleep(0.01)
    time.sleep(0.3)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "it finished before it could be killed"

    batches = _batches(320, 8)
    resumed = observe(small_onnx, batches, progress=False, cache=cache)
    supplied = int(resumed.notes[0].split("first ")[1].split()[0])
    assert 0 < supplied < 40, resumed.notes
    fresh = observe(small_onnx, batches, progress=False)
    assert _same(resumed, fresh) and fresh.notes == ()
    for rule in (MinMaxCalibrator(), EntropyCalibrator(), PercentileCalibrator()):
        assert dict(resumed.ranges(rule)) == dict(fresh.ranges(rule))
    assert (resumed.samples, resumed.data_sha256) == (fresh.samples, fresh.data_sha256)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one entry whenever a batch is really run."""
    calls: list[int] = []
    original = Probe.__call__

    def counted(self: Probe, feeds: Any) -> Any:
        calls.append(1)
        return original(self, feeds)

    monkeypatch.setattr(Probe, "__call__", counted)
    return calls


def test_a_finished_cache_serves_every_calibrator_without_a_run(small_onnx: Path, tmp_path: Path, runs: list[int]) -> None:
    cache = tmp_path / "calibration.npz"
    first = calibrate(small_onnx, _batches(), MinMaxCalibrator(), progress=False, cache=cache)
    assert len(runs) == 4 and first.notes == ()
    again = calibrate(small_onnx, iter(_batches()), PercentileCalibrator(99), progress=False, cache=cache)
    assert len(runs) == 4 and again.notes == ("calibration cache calibration.npz supplied the first 4 batches",)
    assert dict(again) == dict(calibrate(small_onnx, _batches(), PercentileCalibrator(99), progress=False))
    assert [path.name for path in tmp_path.iterdir()] == ["calibration.npz"]  # no temporary file is left


def test_two_models_data_sets_or_tensor_lists_never_share_a_cache(small_onnx: Path, tmp_path: Path, runs: list[int]) -> None:
    cache = tmp_path / "calibration.npz"
    other_model = onnx.load(small_onnx)
    weight = other_model.graph.initializer[0]
    weight.CopyFrom(onnx.numpy_helper.from_array(2 * onnx.numpy_helper.to_array(weight), weight.name))
    one_pixel = _batches()
    one_pixel[3]["image"] = one_pixel[3]["image"].copy()
    one_pixel[3]["image"][5, 0, 3, 3] += 1e-3
    cases: list[tuple[str, Any, Feeds, dict[str, Any]]] = [
        ("another model", other_model, _batches(), {}),
        ("other data", small_onnx, one_pixel, {}),
        ("other data", small_onnx, _batches(80), {}),
        ("other data", small_onnx, _batches(48), {}),
        ("other data", small_onnx, _batches(size=32), {}),
        ("other tensors", small_onnx, _batches(), {"tensors": ["logits"]}),
        ("another number of bins", small_onnx, _batches(), {"bins": 512}),
    ]
    for reason, model, batches, options in cases:
        observe(small_onnx, _batches(), progress=False, cache=cache)
        runs.clear()
        found = observe(model, batches, progress=False, cache=cache, **options)
        assert found.notes == (f"calibration cache calibration.npz belongs to {reason}: it was replaced",)
        assert len(runs) == len(batches)
        assert _same(found, observe(model, batches, progress=False, **options))


@pytest.mark.parametrize("damage", [b"", b"not a zip", None])
def test_a_damaged_cache_is_made_anew_and_that_is_said(small_onnx: Path, tmp_path: Path, damage: bytes | None) -> None:
    cache = tmp_path / "calibration.npz"
    good = observe(small_onnx, _batches(), progress=False, cache=cache)
    whole = cache.read_bytes()
    cache.write_bytes(whole[: len(whole) // 2] if damage is None else damage)
    found = observe(small_onnx, _batches(), progress=False, cache=cache)
    assert "damaged" in found.notes[0] and _same(found, good)
    assert "supplied" in observe(small_onnx, _batches(), progress=False, cache=cache).notes[0]


# --- speed --------------------------------------------------------------------------------------------------------------


# --- the package --------------------------------------------------------------------------------------------------------


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
