"""What it costs an execution context to go from one optimization profile to another, and back.

    python benchmarks/engine_parts/profile_switch.py PLAN SHAPES [SECONDS]

SHAPES is JSON: for each of two profiles, shapes by input. Runs in an interpreter with TensorRT and numpy alone. In every round three
ways run the first shape and then the second: one context that is switched (`set_optimization_profile_async`), two contexts that keep
their profiles, and for comparison one that keeps its profile and its shape. Times are the host's, from the call to the
synchronized stream; inputs are on the device. The last line of the output is JSON.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

from course_lib.benchmark.statistics import speedup
from course_lib.engines.backends.tensorrt import loaded
from course_lib.engines.backends.tensorrt.memory import Buffer, cuda
from course_lib.engines.plan import Plan
from course_lib.errors import EngineError

Shapes = Mapping[str, Sequence[int]]
MOST_ROUNDS = 300


def main() -> None:
    import tensorrt as trt

    plan, shapes = Plan.load(sys.argv[1]), json.loads(sys.argv[2])
    seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 5.0
    print(json.dumps(compared(loaded.load(trt, plan), shapes, seconds)), flush=True)
    os._exit(0)  # TensorRT and pycuda disagree on who leaves first


def compared(engine: loaded.Loaded, shapes: Sequence[Shapes], seconds: float) -> dict[str, Any]:
    """Median host times of one run, and the ratio of the switched context over the two that keep their profiles."""
    stream = cuda().Stream()
    one, own = Context(engine, stream), [Context(engine, stream), Context(engine, stream)]
    for profile, context in enumerate(own):
        context.switch(profile)
    memory = [Memory(engine, context, each, stream) for context, each in zip(own, shapes, strict=True)]

    def switched(profile: int) -> None:
        one.switch(profile)
        one.run(memory[profile])

    ways: dict[str, Callable[[int], None]] = {
        "one context": switched,
        "a context a profile": lambda profile: own[profile].run(memory[profile]),
        "no other profile": lambda _: own[0].run(memory[0]),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    ends = time.monotonic() + seconds
    while len(times["one context"]) < 15 or (time.monotonic() < ends and len(times["one context"]) < MOST_ROUNDS):
        for name in random.sample(list(ways), len(ways)):
            times[name].append(sum(_host_ms(ways[name], profile) for profile in (0, 1)) / 2)
    ms = {name: np.array(values[5:]) for name, values in times.items()}  # the first rounds load kernels
    ratio = speedup(ms["one context"], ms["a context a profile"], seed=0)
    return {
        "ms": {name: float(np.median(values)) for name, values in ms.items()},
        "speedup": asdict(ratio),
        "rounds": len(ms["one context"]),
    }


def _host_ms(way: Callable[[int], None], profile: int) -> float:
    started = time.perf_counter()
    way(profile)
    return 1e3 * (time.perf_counter() - started)


class Context:
    """A raw execution context on a stream."""

    def __init__(self, engine: loaded.Loaded, stream: Any) -> None:
        self.raw, self._engine, self._stream = engine.create_context(None), engine, stream

    def switch(self, profile: int) -> None:
        try:
            done = self.raw.set_optimization_profile_async(profile, self._stream.handle)
        except RuntimeError:  # since 10; 8.6 returns False
            done = False
        if not done:
            raise EngineError(f"profile {profile} cannot be used: {self._engine.log.take()}")

    def set_shapes(self, shapes: Shapes) -> None:
        for name, shape in shapes.items():
            if not self.raw.set_input_shape(name, tuple(shape)):
                raise EngineError(f"input {name!r} rejects shape {tuple(shape)}: {self._engine.log.take()}")

    def run(self, memory: Memory) -> None:
        self.set_shapes(memory.shapes)
        for name, buffer in memory.buffers.items():
            self.raw.set_tensor_address(name, buffer.address)
        if not self.raw.execute_async_v3(self._stream.handle):
            raise EngineError(f"the engine failed to run: {self._engine.log.take()}")
        self._stream.synchronize()


class Memory:
    """Inputs of given shapes, all ones, and room for the outputs, on the device."""

    def __init__(self, engine: loaded.Loaded, context: Context, shapes: Shapes, stream: Any) -> None:
        self.shapes = shapes
        self.buffers = {info.name: Buffer() for info in (*engine.inputs, *engine.outputs)}
        context.set_shapes(shapes)
        for info in engine.inputs:
            self.buffers[info.name].upload(np.ones(tuple(shapes[info.name]), info.dtype), stream)
        for info in engine.outputs:
            shape = loaded.dimensions(context.raw.get_tensor_shape(info.name))
            self.buffers[info.name].grow(int(np.prod(shape)) * np.dtype(info.dtype).itemsize)
        stream.synchronize()


if __name__ == "__main__":
    main()
