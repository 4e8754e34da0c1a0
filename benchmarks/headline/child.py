"""A process that holds several candidates and times them, each on inputs of its own copy of the pool: no input goes through a pipe.

It runs in any interpreter that has numpy and the candidates' backend, and speaks `course_lib.engines.worker.wire`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

from benchmarks.headline.child_process import compile_for_each_shape, serve_held
from benchmarks.headline.trt_build import load_plugins
from course_lib.engines.backends.tensorrt.runtime import TensorRTEngine, shared_scratch
from course_lib.engines.cuda import driver
from course_lib.engines.cuda.graph import CALLS
from course_lib.engines.plan import ModelSource, Plan
from course_lib.engines.registry import load
from course_lib.errors import BackendUnavailable


class Held:
    """The candidates by name.

    Args:
        inputs: file of an array ``(images, ...)``, float32, that inputs are cut from.
        tf32: let torch use TF32 in matrix products, too; by default it does so in convolutions only.
        plugin: library of a TensorRT plugin that some plans need; empty for none.
    """

    def __init__(self, inputs: str, tf32: bool, plugin: str = "") -> None:
        self._pool = np.load(inputs)
        self._tf32 = tf32
        if plugin:
            import tensorrt as trt

            load_plugins(trt, [plugin])
        self._plans: dict[str, Any] = {}
        self._subjects: dict[str, Any] = {}
        self._called: set[str] = set()
        self._names: dict[str, str] = {}  # of each candidate's input

    def load(self, name: str, source: dict[str, Any] | None = None, plan: str = "", graph: bool = False) -> None:
        """Add a candidate: a torch model by its source, or a plan's file, plain or replayed as a CUDA graph."""
        if source is not None:
            _set_up_torch(self._tf32, "compile" in source["variant"])
            engine = load(ModelSource(**{**source, "arguments": tuple(source["arguments"])}))
            subject: Any = engine
        else:
            if plan not in self._plans:
                self._plans[plan] = _loaded(plan)
            engine, scratch = self._plans[plan]
            subject = engine.execution(graph=graph, scratch=scratch) if scratch else engine
            if scratch and not graph:
                subject.clock = CALLS
        self._subjects[name], self._names[name] = subject, engine.inputs[0].name
        if source is not None and "cuda_graph" not in source["variant"]:
            self._called.add(name)

    def infer(self, name: str, batch: int, index: int) -> dict[str, np.ndarray]:
        return dict(self._subjects[name].infer(self._feeds(name, batch, index)))

    def time(self, name: str, batch: int, index: int) -> float:
        """Milliseconds of one run: by replays, by calls in a row, or of PyTorch without a graph the second of two calls.

        Without the first call, it also pays for the turn of another candidate. The other clocks have calls before them in any case.
        """
        feeds = self._feeds(name, batch, index)
        if name in self._called:
            self._subjects[name].time_ms(feeds)
        return float(self._subjects[name].time_ms(feeds))

    def _feeds(self, name: str, batch: int, index: int) -> dict[str, np.ndarray]:
        first = batch * (index % (len(self._pool) // batch))
        return {self._names[name]: self._pool[first : first + batch]}


def _set_up_torch(tf32: bool, compiles: bool) -> None:
    import torch

    if tf32:
        torch.set_float32_matmul_precision("high")
    if compiles:
        compile_for_each_shape()


def _loaded(path: str) -> tuple[Any, Any]:
    """An engine, and for TensorRT the scratch memory that its executions share: one of them runs at a time."""
    plan = Plan.load(path)
    engine: Any = load(plan)
    if plan.backend == "onnxruntime" and driver.capability() and engine.device == "cpu":
        raise BackendUnavailable("this onnxruntime has no CUDA provider")
    return engine, shared_scratch(engine) if isinstance(engine, TensorRTEngine) else None


if __name__ == "__main__":
    serve_held(Held)
