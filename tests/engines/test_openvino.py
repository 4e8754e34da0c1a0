"""OpenVINO behind the course's protocol: the numbers of ONNX Runtime, one thread, and FP32."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from course_lib import engines
from course_lib.engines import Plan
from course_lib.errors import BackendUnavailable, CourseError, EngineError, PrecisionError
from course_lib.models import digits
from course_lib.precision import MinMaxCalibrator, calibrate, insert_qdq
from course_lib.recipe import Recipe
from tests.one_line import one_line

ABSENT = engines.registry.availability("openvino").no_run
needs_openvino = pytest.mark.skipif(bool(ABSENT), reason=f"openvino: {ABSENT}")

OV = "openvino"


@pytest.fixture(scope="module")
def plan(small_onnx: Path, service_recipe: Recipe) -> Plan:
    if ABSENT:
        pytest.skip(f"openvino: {ABSENT}")
    return engines.build(small_onnx, service_recipe, backend=OV)


@pytest.fixture(scope="module")
def engine(plan: Plan) -> Any:
    return engines.load(plan)


def _rejected(kind: type[CourseError], words: list[str], call: Callable[[], Any]) -> None:
    with one_line(kind, *words):
        call()


def _save(model: onnx.ModelProto, folder: Path) -> Path:
    onnx.save(model, folder / "model.onnx")
    return folder / "model.onnx"


def test_absent_it_says_what_to_install(small_onnx: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines.Backend, "version", lambda _: "")
    found = engines.registry.availability(OV)
    assert (found.no_build, found.no_run, found.commands) == (
        *2 * ["not installed"],
        ("pip install 'tensorrt-course[openvino]'",),
    )
    _rejected(
        BackendUnavailable,
        ["openvino cannot build here: not installed; run pip install"],
        lambda: engines.registry.compile_plan(OV, small_onnx, {}),
    )


# ---- running


@pytest.mark.parametrize("batch", [1, 3, 32])
def test_it_agrees_with_onnxruntime(batch: int, engine: Any, small_ort_plan: Plan) -> None:
    feeds = {"image": digits("test").images[:batch]}
    reference = engines.load(small_ort_plan)
    have, want = engine.infer(feeds)["logits"], reference.infer(feeds)["logits"]
    assert have.dtype == np.float32 and have.shape == (batch, 10)
    assert np.abs(have - want).max() < 1e-4 * np.abs(want).max()
    assert (engine.inputs, engine.outputs) == (reference.inputs, reference.outputs)


def test_outputs_of_one_call_outlive_the_next(engine: Any) -> None:
    first = engine.infer({"image": digits("test").images[:2]})["logits"]
    kept = first.copy()
    engine.infer({"image": digits("test").images[5:7]})
    assert np.array_equal(first, kept)


def test_it_computes_with_one_thread(engine: Any) -> None:
    feeds = {"image": np.zeros((32, 1, 32, 32), np.float32)}
    engine.infer(feeds)
    wall, processor = time.perf_counter(), time.process_time()
    timed_ms = sum(engine.time_ms(feeds) for _ in range(20))
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    assert processor < 1.2 * wall, "several threads were busy at a time"
    assert 0 < timed_ms < 1e3 * wall


@needs_openvino
def test_a_call_that_fails_is_one_line(one_node: Callable[..., Any], tmp_path: Path) -> None:
    path = _save(one_node("MatMul", [["n", "k"], ["m", "p"]], output=["n", "p"]), tmp_path)
    engine = engines.load(engines.registry.compile_plan(OV, path, Recipe().wire()))
    feeds = {"x0": np.ones((2, 3), np.float32), "x1": np.ones((4, 5), np.float32)}
    for call in (engine.infer, engine.time_ms):
        _rejected(EngineError, ["openvino failed: [CPU] MatMul node", "incompatible"], lambda call=call: call(feeds))
    assert engine.infer({**feeds, "x1": np.ones((3, 5), np.float32)})["y"].tolist() == [[3.0] * 5] * 2


@needs_openvino
def test_tensors_that_became_one_keep_the_names_of_the_graph(tmp_path: Path) -> None:
    from onnx import TensorProto, helper

    nodes = [("Identity", "x", "y"), ("Relu", "x", "z"), ("Identity", "z", "w")]
    graph = helper.make_graph(
        [helper.make_node(operator, [source], [target], name=target) for operator, source, target in nodes],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4]) for name in ("y", "z", "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    engine = engines.load(engines.build(_save(model, tmp_path), backend=OV))
    outputs = engine.infer({"x": -np.ones((2, 4), np.float32)})
    assert {name: float(values.sum()) for name, values in outputs.items()} == {"y": -8, "z": 0, "w": 0}


# ---- precision


@needs_openvino
def test_another_precision_than_fp32_is_rejected(small_onnx: Path, tmp_path: Path) -> None:
    for precision in ("fp16", "bf16", "int8", "fp8"):
        recipe = Recipe(precision=precision)
        words = [f"OpenVINO in fp32, found {precision}", "onnxruntime"]
        _rejected(PrecisionError, words, lambda recipe=recipe: engines.registry.compile_plan(OV, small_onnx, recipe.wire()))
    model = onnx.load(small_onnx)
    ranges = calibrate(model, [{"image": digits("train").images[:64]}], MinMaxCalibrator())
    quantized = _save(insert_qdq(model, ranges), tmp_path)
    _rejected(PrecisionError, ["found a quantized graph"], lambda: engines.build(quantized, backend=OV))
    plan = engines.build(small_onnx, backend=OV)
    older = replace(plan, recipe={**plan.recipe, "precision": "int8"})
    _rejected(PrecisionError, ["found int8"], lambda: engines.load(older))
