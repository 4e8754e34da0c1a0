"""Answers to exercises with TensorRT calls, on a real TensorRT: what their checks ask on a stand-in, asked again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.raw_calls_parts.running import DRIVER, FOLDER, RUNTIME, attempt, built, defined, trt
from benchmarks.recording import Row
from course_lib.engines.backends.tensorrt.config import network_flags
from course_lib.engines.plan import Plan


def exercises() -> Iterator[Row]:
    """Those whose answers make TensorRT calls."""
    for name, examine in EXERCISES.items():
        yield attempt(f"exercise {name}", examine)


def rejected_nodes(code: str) -> Row:
    given = defined(code, **cells_of_lecture_2())
    answers = [given["rejected_nodes"]((FOLDER / f"{name}.onnx").read_bytes()) for name in ("square", "rejected")]
    return {"right": answers == [[], [("Whirl", "/Whirl_1")]]}


def build_plan(code: str) -> Row:
    given = defined(code, **cells_of_lecture_2())
    plan = given["build_plan"]((FOLDER / "square.onnx").read_bytes(), "x", (1, 4), (4, 4), (8, 4))
    return {"right": RUNTIME.deserialize_cuda_engine(plan) is not None}


def cells_of_lecture_2() -> dict[str, Any]:
    log = trt.Logger(trt.Logger.INTERNAL_ERROR)
    return {"log": log, "builder": trt.Builder(log), "strongly_typed": network_flags(trt), "Shape": tuple}


def add_profile(code: str) -> Row:
    builder = trt.Builder(trt.Logger(trt.Logger.INTERNAL_ERROR))
    config, add = builder.create_builder_config(), defined(code, Any=Any)["add_profile"]
    ranges = {"tokens": ((1, 1, 32), (4, 24, 32), (16, 128, 32)), "mask": ((1, 1), (4, 24), (16, 128))}
    indices = [add(builder, config, ranges) for _ in range(2)]
    rejected = raises_value_error(add, builder, config, {"tokens": ranges["tokens"][::-1]})
    return {"right": rejected and indices == [0, 1] and config.num_optimization_profiles == 2}


def run_request(code: str) -> Row:
    run = requests_of(code, built("extremes"), "image", (8, 4), "answer", (8, 2))
    images = [np.arange(12, dtype=np.float32).reshape(3, 4), np.full((2, 4), 5, np.float32)]
    answers = [run(one) for one in images]
    expected = [np.stack([one.min(1), one.max(1)], 1) for one in images]
    same = all(map(np.array_equal, answers, expected))
    return {"right": same and raises_value_error(run, np.zeros((9, 4), np.float32))}


def raises_value_error(function: Callable[..., Any], *arguments: Any) -> bool:
    try:
        function(*arguments)
    except ValueError:
        return True
    return False


def requests_of(code: str, plan: Plan, *tensors: Any) -> Callable[[np.ndarray], np.ndarray]:
    """Exercise 10.1's answer with a context, a stream and buffers: name and largest shape of the input, then of the output."""
    engine = RUNTIME.deserialize_cuda_engine(plan.data)
    context, stream = engine.create_execution_context(), DRIVER.Stream()
    hosts = [DRIVER.pagelocked_empty(shape, np.float32) for shape in tensors[1::2]]
    memory = [DRIVER.mem_alloc(host.nbytes) for host in hosts]
    for name, one in zip(tensors[::2], memory, strict=True):
        context.set_tensor_address(name, int(one))
    buffers = SimpleNamespace(host_in=hosts[0], host_out=hosts[1], device_in=memory[0], device_out=memory[1])
    answer = defined(code, Any=Any)["run_request"]
    return lambda images: answer(context, DRIVER, stream, buffers, images)


def one_answer(code: str) -> Row:
    answer, plan = defined(code, Any=Any)["one_answer"], built("square").data
    arrays = [np.arange(1, 4 * rows + 1, dtype=np.float32).reshape(rows, 4) for rows in (2, 5)]
    return {"right": all(np.array_equal(answer(trt, DRIVER, plan, x), x * x) for x in arrays)}


EXERCISES = {"2.1": rejected_nodes, "2.3": build_plan, "8.1": add_profile, "10.1": run_request, "10.5": one_answer}
