"""The runtime against a stand-in for TensorRT 10 and 11, which cannot run here: the checks that `tests/gpu` runs on a real 8.6,
and what can only be provoked."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from course_lib import engines
from course_lib.engines.backends.tensorrt import memory
from course_lib.engines.backends.tensorrt.runtime import TensorRTEngine
from course_lib.engines.cuda import driver
from course_lib.engines.cuda import graph as cuda_graph
from course_lib.engines.cuda.graph import CudaGraph
from course_lib.errors import BackendUnavailable, EngineError
from course_lib.standin import cuda_driver, gpu
from tests.doubles.rig import install
from tests.runtime import checks
from tests.runtime.material import prepare

CACHES = (driver.capability, memory._primary)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare(tmp_path_factory.mktemp("runtime"), seed=0)


@pytest.fixture(scope="module", params=["10.16", "11.4"])
def module(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A `tensorrt` with its driver, pycuda and a GPU, all on the host."""
    patch = pytest.MonkeyPatch()
    trt = install(patch, request.param)
    patch.setattr(memory, "_of_this_thread", type(memory._of_this_thread)())
    for cached in CACHES:
        cached.cache_clear()
    yield trt
    patch.undo()
    for cached in CACHES:
        cached.cache_clear()


@pytest.fixture
def bench(module: Any, folder: Path) -> checks.Bench:
    gpu.reset()
    return checks.Bench(module, folder)


@pytest.mark.parametrize("name", checks.CHECKS)
def test_runtime(bench: checks.Bench, name: str) -> None:
    checks.CHECKS[name](bench)


# ---- through the front door


def test_load_takes_a_plan_of_this_backend(bench: checks.Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("course_lib.engines.Backend.version", lambda *_: bench.trt.__version__)
    engine = engines.load(bench.plan())
    assert isinstance(engine, TensorRTEngine)
    bench.right(engine.infer(bench.images(0, 2)), 0, 2)


def test_what_a_plugin_runs_on_a_stream_of_its_own_is_noticed(bench: checks.Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    execution, own = bench.engine().execution(), cuda_driver.Stream()
    assert execution.time_ms(bench.images(0, 2)) > 0
    run = execution._run

    def with_plugin(stream: int) -> None:
        run(stream)
        gpu.current().enqueue(own.handle, lambda: time.sleep(0.002), "cuLaunchKernel")

    monkeypatch.setattr(execution, "_run", with_plugin)
    with pytest.raises(EngineError, match="the GPU was still at work"):
        execution.time_ms(bench.images(0, 2))


def test_a_reading_takes_many_replays_and_an_engine_that_cannot_be_captured_many_calls(
    bench: checks.Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    execution = bench.engine().execution()
    monkeypatch.setattr("course_lib.engines.cuda.two_clocks.runs_in_a_reading", lambda single_ms: 7)
    ran: list[int] = []
    run, launch = execution._run, CudaGraph.launch
    monkeypatch.setattr(execution, "_run", lambda stream: ran.append(0) or run(stream))
    monkeypatch.setattr(CudaGraph, "launch", lambda self, stream: ran.append(1) or launch(self, stream))
    assert execution.time_ms(bench.images(0, 2)) > 0
    assert execution.clock == "replays of a CUDA graph" and ran[-7:] == [1] * 7
    execution.clock = "calls in a row"
    assert execution.time_ms(bench.images(0, 2)) > 0 and ran[-7:] == [0] * 7

    def not_captured(*_: object) -> None:
        raise EngineError("cuStreamEndCapture failed with CUDA_ERROR_STREAM_CAPTURE_INVALIDATED")

    monkeypatch.setattr(cuda_graph.Replay, "run", not_captured)
    execution = bench.engine().execution()
    assert execution.time_ms(bench.images(0, 2)) > 0
    assert execution.clock == "calls in a row"


# ---- torch tensors: on the device, so here they are stand-ins with the few methods that are asked of them


class DeviceTensor:
    is_cuda, device = True, "cuda:0"

    def __init__(self, shape: tuple[int, ...], dtype: str = "torch.float32", *, contiguous: bool = True) -> None:
        self.shape, self.dtype, self._contiguous = shape, dtype, contiguous
        self.memory = cuda_driver.mem_alloc(int(np.prod(shape)) * 4)

    def is_contiguous(self) -> bool:
        return self._contiguous

    def data_ptr(self) -> int:
        return int(self.memory)


@pytest.fixture
def torch_stream(bench: checks.Bench, monkeypatch: pytest.MonkeyPatch) -> Any:
    stream = cuda_driver.Stream()
    torch = SimpleNamespace(
        float32="torch.float32",
        empty=lambda shape, dtype, device: DeviceTensor(shape, dtype),
        cuda=SimpleNamespace(current_stream=lambda: SimpleNamespace(cuda_stream=stream.handle)),
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    return stream


@pytest.mark.parametrize("graph", [False, True])
def test_tensors_are_read_where_they_are_on_torchs_stream(bench: checks.Bench, torch_stream: Any, graph: bool) -> None:
    execution = bench.engine().execution(graph=graph)
    tensor, results = DeviceTensor((4, 1, 32, 32)), []
    for first in (0, 4, 8, 12):
        cuda_driver.memcpy_htod_async(tensor.data_ptr(), bench.images(first, 4)["image"], torch_stream)
        results.append(execution.run_tensors({"image": tensor})["logits"])  # type: ignore[dict-item]
        logits = np.empty((4, 10), np.float32)
        cuda_driver.memcpy_dtoh_async(logits, results[-1].data_ptr(), torch_stream)
        torch_stream.synchronize()
        bench.right({"logits": logits}, first, 4)
    assert (len({id(tensor) for tensor in results}) == 1) == graph, "a graph writes where it was captured"


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        (lambda: DeviceTensor((4, 1, 32, 32), contiguous=False), "not contiguous"),
        (lambda: SimpleNamespace(shape=(4, 1, 32, 32), dtype="torch.float32", is_cuda=False, device="cpu"), "found one on cpu"),
        (lambda: DeviceTensor((4, 1, 32, 32), "torch.float16"), "needs dtype float32, found float16"),
        (lambda: DeviceTensor((33, 1, 32, 32)), "outside every profile"),
    ],
)
def test_tensors_that_do_not_fit(bench: checks.Bench, torch_stream: Any, tensor: Any, words: str) -> None:
    with pytest.raises(EngineError, match=words):
        bench.engine().execution().run_tensors({"image": tensor()})


# ---- what fails on the device


def test_a_device_without_memory_says_how_much_is_free(bench: checks.Bench) -> None:
    gpu.reset(total_memory=64 << 20)
    execution = bench.engine().execution()
    held = cuda_driver.mem_alloc(cuda_driver.mem_get_info()[0] - (1 << 16))
    with pytest.raises(EngineError, match=r"the GPU has 0 of 64 MiB free, 1 MiB are needed"):
        execution.infer(bench.images(0, 32))
    held.free()
    bench.right(execution.infer(bench.images(0, 32)), 0, 32)


def test_a_context_that_cannot_be_made(bench: checks.Bench) -> None:
    gpu.reset(total_memory=64 << 20)
    engine = bench.engine()
    held = cuda_driver.mem_alloc(cuda_driver.mem_get_info()[0] - 1024)
    with pytest.raises(EngineError, match="cannot create an execution context"):
        engine.execution()
    held.free()


def test_an_illegal_address_is_an_error_at_the_next_synchronization(bench: checks.Bench) -> None:
    execution = bench.engine().execution()
    somewhere = np.zeros(8 * 1024, np.float32).ctypes.data  # on the host
    execution.run_at({"image": somewhere, "logits": somewhere}, {"image": (8, 1, 32, 32)}, execution.stream.handle)
    with pytest.raises(EngineError, match=r"the GPU failed while it ran: .*illegal memory access.*; start a new process"):
        execution._synchronize()
    with pytest.raises(EngineError, match="no address for logits"):
        execution.run_at({"image": somewhere}, {"image": (8, 1, 32, 32)}, execution.stream.handle)


def test_without_pycuda_the_message_says_what_to_install(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pycuda", None)
    memory._primary.cache_clear()
    with pytest.raises(BackendUnavailable, match="pip install pycuda"):
        memory.cuda()
    memory._primary.cache_clear()
