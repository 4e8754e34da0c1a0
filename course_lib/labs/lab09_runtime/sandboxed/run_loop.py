"""The process that runs a learner's ``serving_loop.py`` on the stand-in: requests in, answers and the stand-in's record out."""

from __future__ import annotations

import ast
import base64
import gc
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Any

import numpy as np

from course_lib import standin
from course_lib.labs.framework import learner_code
from course_lib.labs.framework.learner_code import decoded, described, encoded, failure, loaded
from course_lib.labs.lab09_runtime.given import VERSION, fits
from course_lib.standin import cuda_driver, gpu
from course_lib.standin.costs import schedule
from course_lib.standin.order import examine

FILE, FUNCTION = "serving_loop.py", "serve"
PACKAGES = "numpy", "tensorrt", "pycuda", "cuda"
MEMORY = 16 << 20  # bytes of the device
_MOST_REJECTED = 20  # rejected calls that are sent
_Serve = Callable[[bytes, Iterator[np.ndarray]], Any]


def answers(request: Mapping[str, Any]) -> dict[str, Any]:
    """What `serve` does in each scene: see `_scene`; or the ``error`` of the whole file.

    Args:
        request: ``source``, the text of the file; ``plan`` in base64; ``scenes``, each with ``requests`` and ``breaks_off``.
    """
    with standin.installed(VERSION), _context():
        try:
            _check_imports(request["source"])
            module = loaded(request["source"], FILE)
        except BaseException as error:  # whatever a learner's code raises, SystemExit included, is an answer
            return failure(error, FILE)
        serve = getattr(module, FUNCTION, None)
        if not isinstance(serve, types.FunctionType):
            return {"error": f"it does not define the function {FUNCTION}(plan, requests)"}
        return {"scenes": [_scene(serve, base64.b64decode(request["plan"]), scene) for scene in request["scenes"]]}


def _check_imports(source: str) -> None:
    """Only these packages: the stand-in, which records what the loop does, is in this process, too."""
    nodes = list(ast.walk(ast.parse(source, FILE)))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)]
    for name in names:
        if name.partition(".")[0] not in (*PACKAGES, *sys.stdlib_module_names):
            raise ImportError(f"the file may import {', '.join(PACKAGES)} and Python's own modules, not {name!r}")


@contextmanager
def _context() -> Iterator[None]:
    """A context on this thread, as pycuda's ``autoinit`` makes one."""
    cuda_driver.Context().push()
    try:
        yield
    finally:
        with suppress(cuda_driver.Error):  # the loop may have taken it away
            cuda_driver.Context.pop()


def _scene(serve: _Serve, plan: bytes, scene: Mapping[str, Any]) -> dict[str, Any]:
    """``answers`` or the ``error`` of `serve`, and what the stand-in recorded until it ended."""
    trace: list[gpu.Row] = []
    gpu.reset(total_memory=MEMORY, trace=trace)
    requests = [_with_strides(decoded(request), request["strides"]) for request in scene["requests"]]
    returned, kept = None, None  # as a service keeps them: the traceback of an error holds the variables of `serve`
    try:
        returned = serve(plan, _one_by_one(requests, scene["breaks_off"]))
    except BaseException as error:
        kept = error
    gc.collect()
    names = {request.tobytes(): f"request {number}" for number, request in enumerate(requests) if fits(request)}
    findings = examine(trace, names)
    times = schedule([] if findings.mistakes else trace)  # what does not wait is fast and wrong
    return {
        **asdict(findings),
        "mistakes": [asdict(mistake) for mistake in findings.first_mistakes],
        "mistake_count": len(findings.mistakes),
        "rejected": _rejected(trace)[-_MOST_REJECTED:],
        "time_us": times.time_us,
        "intervals": [list(interval) for interval in times.intervals],
        **(failure(kept, FILE) if kept else _returned(returned)),
    }


def _with_strides(array: np.ndarray, strides: Sequence[int]) -> np.ndarray:
    """A copy with this order in memory, which belongs to the question."""
    reach = [stride * (size - 1) for stride, size in zip(strides, array.shape, strict=True)]
    memory = bytearray(sum(map(abs, reach)) + array.itemsize)
    first = -sum(min(0, one) for one in reach)
    view: np.ndarray = np.ndarray(array.shape, array.dtype, memory, first, tuple(strides))
    view[...] = array
    return view


def _one_by_one(requests: list[np.ndarray], breaks_off: bool) -> Iterator[np.ndarray]:
    for number, request in enumerate(requests):
        gpu.current().note("asked", number)
        yield request
    gpu.current().note("asked", len(requests))
    if breaks_off:
        raise ConnectionError("the client closed the connection")


def _rejected(trace: list[gpu.Row]) -> list[list[Any]]:
    """The calls that TensorRT rejected: the number of the request that the loop took last, the call and the reason."""
    rejected, number = [], -1
    for kind, *values in trace:
        if kind == "asked":
            number = values[0]
        elif kind == "rejected":
            rejected.append([number, values[0], values[2]])
    return rejected


def _returned(answers: Any) -> dict[str, Any]:
    try:
        return {"answers": [None if answer is None else encoded(np.asarray(answer, np.float32)) for answer in answers]}
    except Exception as error:
        return {"error": f"it must return a list of arrays and None: {described(error, FILE)}", "raised": "TypeError"}


def main() -> None:
    """Answer one request on standard input; what the learner's code prints is discarded."""
    learner_code.run(answers)
