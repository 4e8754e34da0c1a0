"""A process that holds ready calls and times them: engines in TensorRT's interpreter, torch's networks in this one.

All calls are CUDA graphs on inputs that are on the device. It speaks `course_lib.engines.worker.wire`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

from course_lib.engines.plan import Plan
from course_lib.engines.registry import load
from course_lib.engines.worker import wire


class Ready:
    """One call on an input that stays where it is.

    Attributes:
        enqueue: the call; it returns while the GPU works.
        answer: the output of the last call, float32.
    """

    enqueue: Callable[[], Any]

    def answer(self) -> np.ndarray:
        raise NotImplementedError

    def time_ms(self, calls: int) -> float:
        """Device time of one call, in milliseconds, when so many follow each other."""
        raise NotImplementedError


class Engine(Ready):
    """A plan at one batch size. Its input is cast to the type that it takes."""

    def __init__(self, plan: str, images: np.ndarray) -> None:
        from course_lib.engines.backends.tensorrt.memory import allocate, cuda

        self._cuda, self._engine = cuda, load(Plan.load(plan))
        execution: Any = self._engine.execution(graph=True)  # type: ignore[attr-defined]
        (given,), (wanted,) = self._engine.inputs, self._engine.outputs
        shapes = {given.name: images.shape}
        self._output = np.empty(execution.output_shapes(shapes)[wanted.name], wanted.dtype)
        sent = np.ascontiguousarray(images, given.dtype)
        self._memory = {given.name: allocate(sent.nbytes), wanted.name: allocate(self._output.nbytes)}
        cuda().memcpy_htod(self._memory[given.name], sent)
        addresses = {name: int(memory) for name, memory in self._memory.items()}
        self._execution = execution  # the graph writes into its scratch memory
        self._stream, self._address = execution.stream, addresses[wanted.name]
        for _ in range(3):  # the second one captures
            execution.run_at(addresses, shapes, self._stream.handle)
        graph = execution._replay._graph  # its launch alone: setting shapes and addresses takes as long as a small network
        self.enqueue = lambda: graph.launch(self._stream.handle)

    def answer(self) -> np.ndarray:
        self._stream.synchronize()
        self._cuda().memcpy_dtoh(self._output, self._address)
        return self._output.astype(np.float32)

    def time_ms(self, calls: int) -> float:
        begin, end = self._cuda().Event(), self._cuda().Event()
        self._stream.synchronize()
        begin.record(self._stream)
        for _ in range(calls):
            self.enqueue()
        end.record(self._stream)
        end.synchronize()
        return float(begin.time_till(end)) / calls


class Torch(Ready):
    """A network in torch, eager or compiled for this shape, captured in a graph."""

    def __init__(self, factory: str, precision: str, compiled: bool, images: np.ndarray) -> None:
        import torch

        from benchmarks.headline.torch_networks import network
        from course_lib.engines.backends.torch import GraphedCallable

        self._torch, half = torch, precision == "fp16"
        dtype = torch.float16 if half else torch.float32
        model = network(half, factory).eval().to("cuda", dtype)
        with torch.inference_mode():
            function = torch.compile(model, fullgraph=True, dynamic=False) if compiled else model
            x = torch.from_numpy(images).to("cuda", dtype)
            self.enqueue = GraphedCallable(function).prepare([x])

    def answer(self) -> np.ndarray:
        answer: np.ndarray = self.enqueue().float().cpu().numpy()
        return answer

    def time_ms(self, calls: int) -> float:
        cuda = self._torch.cuda
        begin, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        cuda.synchronize()
        begin.record()
        for _ in range(calls):
            self.enqueue()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / calls


def main() -> None:
    """Answer requests until standard input closes; every failure is an answer."""
    reader, writer = os.dup(0), os.dup(1)
    os.dup2(2, 1)  # what libraries print must not end up between messages
    held: dict[str, Ready] = {}
    for request, arrays in wire.requests(reader):
        try:
            header: dict[str, Any] = {}
            answer: dict[str, np.ndarray] = {}
            name = request["name"]
            if request["do"] == "drop":
                held.clear()
            elif request["do"] == "time":
                header = {"ms": held[name].time_ms(request["calls"])}
            else:
                made = Engine if "plan" in request else Torch
                given = {key: value for key, value in request.items() if key not in ("do", "name")}
                held[name] = made(images=arrays["images"], **given)
                held[name].enqueue()
                answer = {"logits": held[name].answer()}
            wire.send(writer, header, answer)
        except Exception as error:
            wire.send(writer, {"error": type(error).__name__, "message": str(error)})
    os._exit(0)  # TensorRT and pycuda disagree on who leaves first


if __name__ == "__main__":
    main()
