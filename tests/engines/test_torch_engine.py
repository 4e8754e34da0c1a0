"""The baseline and its variants give the same numbers, and what a variant does once for a shape is never timed."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from course_lib import engines
from course_lib.engines import ModelSource, TensorInfo
from course_lib.engines.backends.torch import GraphedCallable
from course_lib.engines.plan import VARIANTS
from course_lib.errors import BackendUnavailable, EngineError
from course_lib.models import Signature

NEEDS_COMPILER = pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler on the CPU")


class Tiny(torch.nn.Module):
    """Small, because torch.compile takes seconds for each operator; with two outputs and a dynamic batch."""

    def __init__(self) -> None:
        super().__init__()
        self.line = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.relu(self.line(x))
        return y, y.sum(1)

    def signature(self) -> Signature:
        return Signature(inputs={"x": ("batch", 8)}, outputs=("y", "total"))


class Picky(Tiny):
    """Rejects zeros by reading a value, which neither a graph nor a compiled function can do."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if float(x.sum()) == 0:
            raise RuntimeError("zeros are rejected\nwith a long explanation")
        return super().forward(x)


def tiny() -> Tiny:
    torch.manual_seed(0)
    return Tiny()


def picky() -> Picky:
    return Picky()


def _source(variant: str = "eager", factory: str = "tiny", dtype: str = "fp32") -> ModelSource:
    return ModelSource(f"{__name__}:{factory}", dtype=dtype, variant=variant)


def _feeds(batch: int) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng().standard_normal((batch, 8)).astype(np.float32)}


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_eager_is_the_module_itself(dtype: str) -> None:
    engine, feeds = engines.load(_source(dtype=dtype)), _feeds(3)
    assert engine.backend == "torch" and engine.inputs == (TensorInfo("x", (-1, 8), "float32"),)
    with torch.inference_mode():
        want, _ = tiny().to({"fp32": torch.float32, "fp16": torch.half, "bf16": torch.bfloat16}[dtype])(
            torch.from_numpy(feeds["x"]).to({"fp32": torch.float32, "fp16": torch.half, "bf16": torch.bfloat16}[dtype])
        )
    have = engine.infer(feeds)
    assert list(have) == ["y", "total"] and have["y"].dtype == np.float32
    assert np.allclose(have["y"], want.float().numpy(), atol=1e-6)
    assert 0 < engine.time_ms(feeds) < 1000


def test_an_unknown_variant_is_rejected_where_it_is_written() -> None:
    with pytest.raises(ValueError, match=r"eager, compile, cuda_graph, compile\+cuda_graph, found 'faster'"):
        ModelSource("m:f", variant="faster")
    assert all(ModelSource("m:f", variant=variant).variant == variant for variant in VARIANTS)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
@pytest.mark.parametrize("variant", ["cuda_graph", "compile+cuda_graph"])
def test_a_cuda_graph_without_a_gpu(variant: str) -> None:
    with pytest.raises(BackendUnavailable) as raised:
        engines.load(_source(variant))
    assert f"{variant!r} needs an NVIDIA GPU" in str(raised.value) and "'eager'" in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1


def test_a_module_that_fails_is_one_line() -> None:
    engine = engines.load(_source(factory="picky"))
    for call in (engine.infer, engine.time_ms):
        with pytest.raises(EngineError, match="torch failed: zeros are rejected with a long explanation"):
            call({"x": np.zeros((1, 8), np.float32)})
    with pytest.raises(EngineError, match="needs shape Nx8, found 2x9"):
        engine.infer({"x": np.zeros((2, 9), np.float32)})


def compilation_times() -> list[float]:
    """In seconds, of everything that torch.compile has compiled in this process."""
    return list(torch._dynamo.utils.compilation_time_metrics.get("_compile.compile_inner", []))


@NEEDS_COMPILER
def test_compiling_is_never_timed() -> None:
    torch._dynamo.reset()
    eager, compiled = engines.load(_source()), engines.load(_source("compile"))
    compilations = []
    for batch in (3, 1, 32, 3, 7, 1):
        before, feeds, started = compilation_times(), _feeds(batch), time.perf_counter()
        timed_ms = compiled.time_ms(feeds)
        wall_ms = 1000 * (time.perf_counter() - started)
        compilations.append(len(compilation_times()) - len(before))
        if compilations[-1]:
            assert 0 < timed_ms < wall_ms / 5, f"batch {batch}: {timed_ms:.1f} of {wall_ms:.1f} ms"
        want, have = eager.infer(feeds), compiled.infer(feeds)
        assert all(np.allclose(have[name], want[name], rtol=1e-5, atol=1e-5) for name in want)
    assert compilations[0] > 0, "the first call compiled nothing, so this test has seen nothing"
    assert compilations[3] == compilations[5] == 0, "a shape that was there before was compiled again"


@NEEDS_COMPILER
def test_what_cannot_be_compiled_as_a_whole_is_an_error() -> None:
    """Left alone, torch.compile would break the graph at the reading of the value and run both parts."""
    engine = engines.load(_source("compile", factory="picky"))
    with pytest.raises(EngineError, match="torch failed: ") as raised:
        engine.infer(_feeds(2))
    assert len(str(raised.value).splitlines()) == 1 and len(str(raised.value)) < 400


# ---- CUDA graphs, as far as they can be seen without a GPU


class Recorder:
    """What `GraphedCallable` asks of torch.cuda; a replay is counted and computes nothing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.captures = self.replays = 0
        recorder = self

        class Graph:
            def replay(self) -> None:
                recorder.replays += 1

        class Stream:
            def wait_stream(self, other: Stream) -> None: ...

        @contextlib.contextmanager
        def graph(graph: Graph) -> Iterator[None]:
            self.captures += 1
            yield

        stand_ins = {"CUDAGraph": Graph, "Stream": Stream, "current_stream": Stream, "stream": contextlib.nullcontext}
        for name, stand_in in {**stand_ins, "graph": graph}.items():
            monkeypatch.setattr(torch.cuda, name, stand_in)


def test_a_graph_is_captured_once_for_each_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(monkeypatch)
    runs: list[torch.Tensor] = []

    def function(x: torch.Tensor) -> torch.Tensor:
        runs.append(x)
        return 2 * x

    graphed = GraphedCallable(function)
    read_by: dict[int, torch.Tensor] = {}
    for batch, captures in ((1, 1), (3, 2), (1, 2), (3, 2)):
        x = torch.randn(batch, 4)
        launch = graphed.prepare([x])
        assert recorder.captures == captures and len(runs) == 4 * captures, "three runs to warm up, and the captured one"
        read_by.setdefault(batch, runs[-1])
        assert torch.equal(read_by[batch], x) and read_by[batch].data_ptr() != x.data_ptr(), "the values are where it reads"
        before = recorder.replays
        assert launch() is launch() and recorder.replays == before + 2 and len(runs) == 4 * captures
