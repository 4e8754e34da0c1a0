"""ONNX Runtime's engine on the CPU; a GPU that does not work is an error with the reason."""

import ctypes
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from course_lib import engines
from course_lib.engines import Plan
from course_lib.engines.backends.onnxruntime import backend as ort
from course_lib.engines.backends.onnxruntime import session as ort_session
from course_lib.engines.backends.onnxruntime.backend import OnnxRuntime, OnnxRuntimeEngine
from course_lib.engines.cuda import driver as cuda_driver
from course_lib.engines.cuda import stream as cuda_stream
from course_lib.errors import BackendUnavailable, CourseError, EngineError
from course_lib.recipe import Recipe
from tests.one_line import one_line

pytestmark = pytest.mark.skipif(ort_session.device() == "cuda", reason="tests/gpu runs these on the GPU")


@pytest.fixture
def engine(small_ort_plan: Plan) -> OnnxRuntimeEngine:
    return OnnxRuntimeEngine(small_ort_plan)


def _rejected(kind: type[CourseError], words: list[str], call: Callable[[], Any]) -> None:
    with one_line(kind, *words):
        call()


def test_the_size_of_an_output_may_depend_on_values(one_node: Callable[..., Any], tmp_path: Path) -> None:
    model = one_node("NonZero", [["n"]], output=[1, "found"])
    model.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.INT64
    onnx.save(model, tmp_path / "model.onnx")
    engine = engines.load(engines.build(tmp_path / "model.onnx", backend="onnxruntime"))
    assert isinstance(engine, OnnxRuntimeEngine)
    for values, places in (([0.0, 2.0, 3.0], [1, 2]), ([0.0, 0.0], []), ([5.0], [0])):
        found = engine.infer({"x0": np.array(values, np.float32)})["y"]
        assert found.dtype == np.int64 and found.tolist() == [places]


def test_a_call_that_fails_is_one_line(one_node: Callable[..., Any], tmp_path: Path) -> None:
    onnx.save(one_node("MatMul", [["n", "k"], ["m", "p"]], output=["n", "p"]), tmp_path / "model.onnx")
    engine = OnnxRuntimeEngine(OnnxRuntime().compile(tmp_path / "model.onnx", Recipe().wire(), {}))
    arrays = {"x0": np.ones((2, 3), np.float32), "x1": np.ones((4, 5), np.float32)}
    for call in (lambda: engine.infer(arrays), lambda: engine.time_ms(arrays)):
        _rejected(EngineError, ["onnxruntime failed: "], call)
    assert engine.infer({**arrays, "x1": np.ones((3, 5), np.float32)})["y"].tolist() == [[3.0] * 5] * 2


# ---- what is timed


class _Clock:
    """Instead of CUDA's: counts what it is given to enqueue."""

    def __init__(self) -> None:
        self.calls = 0

    def time_ms(self, enqueue: Callable[[], None]) -> float:
        self.calls += 1
        enqueue()
        return 1.5


def test_a_new_shape_runs_once_before_the_clock_starts(engine: OnnxRuntimeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The path of a GPU with its bindings of arrays, on the CPU provider."""
    clock, runs = _Clock(), []
    original = ort._enqueue

    def enqueue(session: Any, binding: Any) -> None:
        original(session, binding)
        runs.append(tuple(binding.get_outputs()[0].shape()))

    monkeypatch.setattr(ort, "_enqueue", enqueue)
    monkeypatch.setattr(engine, "_clock", clock)
    for batch, ran in ((2, 2), (2, 1), (5, 2), (2, 1)):
        runs.clear()
        assert engine.time_ms({"image": np.zeros((batch, 1, 32, 32), np.float32)}) == 1.5
        assert runs == [(batch, 10)] * ran
    assert clock.calls == 4


class _Driver:
    """The driver's functions as the C library has them: a status is returned, results are written where a pointer says."""

    def __init__(self, fails: str = "") -> None:
        self.fails = fails
        self.said: list[tuple[Any, ...]] = []
        self._next = 100

    def __getattr__(self, name: str) -> Callable[..., int]:
        def call(*arguments: Any) -> int:
            if name == "cuGetErrorName":
                arguments[1]._obj.value = b"CUDA_ERROR_OUT_OF_MEMORY"
                return 0
            if name in ("cuDevicePrimaryCtxRetain", "cuStreamCreate", "cuEventCreate"):
                self._next += 1
                arguments[0]._obj.value = self._next
            if name == "cuEventElapsedTime":
                arguments[0]._obj.value = 2.5
            self.said.append((name, *(getattr(argument, "value", argument) for argument in arguments[-2:])))
            return 2 if name == self.fails else 0

        return call


def test_the_clock_records_around_the_work_on_its_own_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = _Driver()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver)
    stream = cuda_stream.CudaStream()
    context, handle, begin, end = 101, stream.handle, 103, 104
    assert handle == 102
    driver.said.clear()
    assert stream.time_ms(lambda: driver.said.append(("the work",))) == 2.5
    assert [said for said in driver.said if said[0] != "cuEventElapsedTime"] == [
        ("cuCtxSetCurrent", context),
        ("cuStreamSynchronize", handle),
        ("cuEventRecord", begin, handle),
        ("the work",),
        ("cuEventRecord", end, handle),
        ("cuEventSynchronize", end),
        ("cuCtxSynchronize",),
        ("cuCtxSynchronize",),
    ]
    assert ("cuEventElapsedTime", begin, end) in driver.said


def test_a_driver_that_rejects_and_one_that_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: _Driver(fails="cuStreamCreate"))
    _rejected(EngineError, ["cuStreamCreate failed with CUDA_ERROR_OUT_OF_MEMORY"], cuda_stream.CudaStream)

    def missing(name: str) -> Any:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    _rejected(BackendUnavailable, ["no NVIDIA driver"], cuda_stream.CudaStream)


# ---- which device


@pytest.fixture
def gpu_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver answers and ONNX Runtime says that it was built for CUDA; its CUDA provider is absent all the same."""
    monkeypatch.setattr(cuda_driver, "capability", lambda: "sm90")
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [ort_session.CUDA, ort_session.CPU])


@pytest.mark.usefixtures("gpu_claimed")
@pytest.mark.filterwarnings("ignore:Specified provider")
def test_a_cuda_provider_that_does_not_load_is_an_error(small_onnx: Path) -> None:
    assert ort_session.device() == "cuda"
    words = [
        "CUDA provider did not load",
        "libonnxruntime_providers",
        "cannot open shared object",
        "onnxruntime-gpu[cuda,cudnn]",
    ]
    _rejected(BackendUnavailable, words, lambda: ort_session.open_session(small_onnx.read_bytes(), "cuda", stream=5))


def test_a_session_is_told_its_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []

    def session(data: bytes, options: Any, *, providers: Any, enable_fallback: int) -> Any:
        told.append(providers)
        assert enable_fallback == 0, "otherwise a failing provider is replaced with nothing but a print"
        return SimpleNamespace(get_providers=lambda: [ort_session.CUDA, ort_session.CPU])

    monkeypatch.setattr(onnxruntime, "InferenceSession", session)
    for stream, tf32 in ((0, True), (77, False)):
        ort_session.open_session(b"", "cuda", stream=stream, tf32=tf32)
    settings = [providers[0][1] for providers in told]
    assert [s["user_compute_stream"] for s in settings] == [1, 77], "the handle 0 would mean its own stream"
    assert [s["use_tf32"] for s in settings] == [1, 0] and all(providers[1] == ort_session.CPU for providers in told)


def test_without_a_gpu_or_without_cuda_it_is_the_cpu(monkeypatch: pytest.MonkeyPatch, small_onnx: Path) -> None:
    monkeypatch.setattr(cuda_driver, "capability", lambda: "sm90")
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [ort_session.CPU])
    assert ort_session.device() == "cpu"
    plan = OnnxRuntime().compile(small_onnx, Recipe().wire(), {})
    assert any("on the CPU although a GPU (sm90) is here" in note and "onnxruntime-gpu" in note for note in plan.notes)
    monkeypatch.setattr(cuda_driver, "capability", lambda: None)
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [ort_session.CUDA, ort_session.CPU])
    assert ort_session.device() == "cpu" and OnnxRuntimeEngine(plan).device == "cpu"
    assert not any("GPU" in note for note in OnnxRuntime().compile(small_onnx, Recipe().wire(), {}).notes)
