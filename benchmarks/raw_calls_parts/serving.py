"""Lab 09 on a real TensorRT: the cells of its notebook, and serving loops with the lab's own requests."""

from __future__ import annotations

import contextlib
import gc
import io
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.raw_calls_parts.running import CODE, DRIVER, FOLDER, SETTINGS, attempt, defined, trt
from benchmarks.recording import Row, one_line
from course_lib.benchmark.statistics import speedup
from course_lib.labs.lab09_runtime import given
from course_lib.labs.lab09_runtime.given import BROKEN, MIXED, PLAIN, Scene

TOLERANCE = 1e-4  # of scores, as in the notebook
AGAIN = 10  # calls whose memory is counted


def lab09() -> Iterator[Row]:
    """The given cells of the notebook, and each serving loop."""
    plan = given.serialized_engine(trt, (FOLDER / "scorer.onnx").read_bytes())
    arrays = dict(np.load(FOLDER / "scenes.npz"))
    code = "lab09: cells of the notebook"
    yield attempt(code, cells, plan, arrays["cells"])
    for code in [name for name in CODE if name.startswith("lab09: ") and name.endswith(".py")]:
        yield attempt(code, served, plan, arrays)


def cells(code: str, plan: bytes, expected: np.ndarray) -> Row:
    """The scores after the wait are compared where the cells themselves call `given.scores`."""
    found: list[np.ndarray] = []
    held: dict[str, Any] = {}

    def scores(features: np.ndarray) -> np.ndarray:
        found.append(held["host_out"][: len(features)].copy())
        return expected

    with contextlib.redirect_stdout(io.StringIO()) as printed:
        held |= {"__name__": "notebook", "trt": trt, "cuda": DRIVER, "np": np}
        held |= {"given": SimpleNamespace(scores=scores), "plan": plan}
        exec(compile(CODE[code], code, "exec", dont_inherit=True), held)
    error = float(np.abs(found[0] - expected).max())
    return {"right": error <= TOLERANCE, "largest_error": error, "printed": printed.getvalue().splitlines()}


def served(code: str, plan: bytes, arrays: dict[str, np.ndarray]) -> Row:
    """Answers in the lab's three scenes, the memory that calls leave, and what it gains to wait late."""
    loop = defined(code)
    scenes = {name: in_scene(loop["serve"], plan, name, arrays) for name in (PLAIN, MIXED, BROKEN)}
    row = {"right": all(scene["right"] for scene in scenes.values()), **scenes}
    if "BufferSet" in loop:
        request = next(one for one in arrays.values() if one.shape == (given.MOST_ROWS, given.COLUMNS))
        row["overlap"] = overlap(code, plan, request)
    return row


def in_scene(serve: Callable[..., Any], plan: bytes, name: str, arrays: dict[str, np.ndarray]) -> Row:
    """One scene: its answers or its end by an error, and the device memory that is missing after more calls."""
    count = sum(key.startswith(f"{name}/") and not key.endswith("/scores") for key in arrays)
    scene = Scene(name, tuple(arrays[f"{name}/{number}"] for number in range(count)), breaks_off=name == BROKEN)
    expected = [arrays.get(f"{name}/{number}/scores") for number in range(count)]
    answers, error = outcome(serve, plan, scene)
    pairs = list(zip(answers or [], expected, strict=False))
    errors = [float(np.abs(a - b).max()) for a, b in pairs if a is not None and b is not None]
    complete = error is None and sum((a is None) == (b is None) for a, b in pairs) == count
    ended = isinstance(error, ConnectionError) if scene.breaks_off else complete
    outcome(serve, plan, scene)  # CUDA keeps some memory of the first calls
    before = free_bytes()
    kept = [outcome(serve, plan, scene) for _ in range(AGAIN)]  # answers and errors, as a service keeps them
    return {
        "right": ended and max(errors, default=0.0) <= TOLERANCE,
        "requests": count,
        "answered": len(errors),
        "largest_error": max(errors, default=None),
        "ended_with": "" if error is None else one_line(error),
        "bytes_left_by_a_call": (before - free_bytes()) / len(kept),
    }


def outcome(serve: Callable[..., Any], plan: bytes, scene: Scene) -> tuple[Any, Exception | None]:
    """What a loop returns, or what it raises."""
    try:
        return serve(plan, iter(scene)), None
    except Exception as error:
        return None, error


def free_bytes() -> int:
    gc.collect()
    return int(DRIVER.mem_get_info()[0])


def overlap(code: str, plan: bytes, request: np.ndarray) -> Row:
    """Microseconds of a request, and the gain over the same loop if it waits for each request before the next one."""
    loop, waiting = defined(code), defined(code)
    start = waiting["BufferSet"].start

    def start_and_wait(self: Any, number: int, request: np.ndarray) -> Any:
        started = start(self, number, request)
        self.stream.synchronize()
        return started

    waiting["BufferSet"].start = start_and_wait
    us = np.array([[us_each(one["serve"], plan, request) for one in (waiting, loop)] for _ in range(SETTINGS["rounds"])]).T
    row = {"rows": len(request), "us_waiting": float(np.median(us[0])), "us": float(np.median(us[1]))}
    return {**row, "speedup": asdict(speedup(*us, seed=0))}


def us_each(serve: Callable[..., Any], plan: bytes, request: np.ndarray) -> float:
    """Microseconds between two requests that the loop takes, without the first tenth."""
    marks, count = list[float](), SETTINGS["requests"]

    def requests() -> Iterator[np.ndarray]:
        for _ in range(count):
            marks.append(time.perf_counter())
            yield request
        marks.append(time.perf_counter())

    serve(plan, requests())
    first = count // 10
    return 1e6 * (marks[-1] - marks[first]) / (count - first)
