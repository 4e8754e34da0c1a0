"""OpenVINO behind the course's protocol: the numbers of ONNX Runtime, one thread, and the precision that was asked for or none."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from course_lib import engines
from course_lib._util.cpu_int8 import has_byte_dot_products
from course_lib.engines import Plan
from course_lib.errors import BackendUnavailable, BuildError, CourseError, EngineError, PrecisionError
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
    assert found.no_build == found.no_run == "not installed: pip install 'tensorrt-course[openvino]'"
    _rejected(BackendUnavailable, ["openvino cannot build here"], lambda: engines.registry.compile_plan(OV, small_onnx, {}))


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


# ---- precision, proved on the layers


def test_the_layers_of_the_classifier(plan: Plan) -> None:
    convolutions = [layer for layer in plan.layers if layer.kind == "Convolution"]
    fused = [plan.layers.fused_operators(layer) for layer in convolutions]
    assert sorted(fused) == ["Conv"] * 2 + ["Conv + Add + Relu"] * 3 + ["Conv + Relu"] * 4
    assert all(layer.dtypes == {"Float"} and layer.weights and layer.tactic.endswith("_f32") for layer in convolutions)
    assert convolutions[0].outputs[0].shape == (-1, 16, 32, 32)
    named = {plan.layers.operators[node] for layer in plan.layers for node in layer.onnx_nodes}
    assert named == set(plan.layers.operators.values()), "every operator of the graph is in some layer"
    assert not any(layer.kind in ("Const", "Input", "Output") for layer in plan.layers)
    assert engines.LayerTable.from_json(json.loads(json.dumps(plan.layers.to_json()))) == plan.layers


@pytest.fixture(scope="module")
def int8_onnx(small_onnx: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = onnx.load(small_onnx)
    ranges = calibrate(model, [{"image": digits("train").images[:64]}], MinMaxCalibrator())
    return _save(insert_qdq(model, ranges), tmp_path_factory.mktemp("int8"))


@pytest.mark.instructions
def test_int8_is_proved_and_not_taken_for_float(int8_onnx: Path, small_onnx: Path, service_recipe: Recipe, engine: Any) -> None:
    int8 = service_recipe.model_copy(update={"precision": "int8"})
    words = ["the recipe says fp32", "INT8"]
    _rejected(PrecisionError, words, lambda: engines.build(int8_onnx, service_recipe, backend=OV))
    if not has_byte_dot_products():
        words = ["saturate on this processor", "VNNI", "onnxruntime"]
        _rejected(PrecisionError, words, lambda: engines.registry.compile_plan(OV, int8_onnx, int8.wire()))
        return
    quantized = engines.build(int8_onnx, int8, backend=OV)
    assert sum("Int8" in layer.dtypes for layer in quantized.layers if layer.kind == "Convolution") == 9
    images = {"image": digits("test").images[:32]}
    have, want = engines.load(quantized).infer(images)["logits"], engine.infer(images)["logits"]
    assert 0 < np.abs(have - want).max() < 0.2 * np.abs(want).max() and (have.argmax(1) == want.argmax(1)).mean() > 0.9
    words = ["the recipe says int8", "none of"]
    _rejected(PrecisionError, words, lambda: engines.build(small_onnx, Recipe(precision="int8"), backend=OV))


@needs_openvino
def test_int8_that_would_saturate_is_rejected_when_it_is_built_and_when_it_is_loaded(
    int8_onnx: Path, service_recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    int8 = service_recipe.model_copy(update={"precision": "int8"})
    monkeypatch.setattr("course_lib._util.cpu_int8.cpu_features", lambda: frozenset({"avx512_vnni"}))
    plan = engines.registry.compile_plan(OV, int8_onnx, int8.wire())
    monkeypatch.setattr("course_lib._util.cpu_int8.cpu_features", lambda: frozenset({"avx2", "avx512f"}))
    words = ["saturate on this processor", "VNNI", "onnxruntime"]
    _rejected(PrecisionError, words, lambda: engines.registry.compile_plan(OV, int8_onnx, int8.wire()))
    _rejected(PrecisionError, words, lambda: engines.load(plan))


@needs_openvino
@pytest.mark.parametrize(("precision", "word"), [("fp16", "Half"), ("bf16", "BFloat16")])
def test_a_smaller_type_is_computed_with_or_rejected(precision: str, word: str, small_onnx: Path) -> None:
    """Which of the two depends on the processor."""
    try:
        plan = engines.build(small_onnx, Recipe(precision=precision), backend=OV)
    except PrecisionError as error:
        assert f"the recipe says {precision}" in str(error) and "on this processor" in str(error) and "Float" in str(error)
    else:
        assert sum(word in layer.dtypes for layer in plan.layers if layer.kind == "Convolution") == 9


@needs_openvino
def test_a_precision_that_it_does_not_know(small_onnx: Path) -> None:
    call = lambda: engines.build(small_onnx, Recipe(precision="fp8"), backend=OV)  # noqa: E731
    _rejected(BuildError, ["no fp8", "fp32, fp16, bf16, int8"], call)
