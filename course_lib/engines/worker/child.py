"""The child process of a worker, which holds an engine or a compiler. It needs only Python 3.10, numpy and its backend."""

from __future__ import annotations

import os
import select
import tempfile
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from course_lib._util.plain_text import reason
from course_lib.engines import registry
from course_lib.engines.plan import Engine, ModelSource, Plan
from course_lib.engines.progress import Report, at_most_every
from course_lib.engines.worker import wire
from course_lib.errors import CourseError, EngineError


def serve(load: Callable[[dict[str, Any], dict[str, np.ndarray]], Any] | None = None) -> None:
    """Answer requests on standard input until it closes.

    Args:
        load: makes what takes the engine's place of the request to load one, in a worker with its own program.
    """
    reader, writer = os.dup(0), os.dup(1)
    threading.Thread(target=_end_with_parent, args=(reader,), daemon=True).start()
    os.dup2(2, 1)  # compilers print on standard output, which carries messages here
    engine: Any = None  # an `Engine`, or what takes its place
    for request, arrays in wire.requests(reader):
        try:
            header: dict[str, Any] = {}
            answer: dict[str, np.ndarray] = {}
            if request["do"] == "load":
                engine = (load or _load)(request, arrays)
                header = {side: [asdict(info) for info in getattr(engine, side)] for side in ("inputs", "outputs")}
            elif request["do"] in ("infer", "time"):
                if engine is None:
                    raise EngineError("the worker has no engine: load one first")
                if request["do"] == "infer":
                    answer = engine.infer(arrays)
                else:
                    if request["clock"]:
                        engine.clock = request["clock"]
                    header = {"ms": engine.time_ms(arrays), "clock": getattr(engine, "clock", "")}
            else:
                header, answer = _build_or_describe(request, arrays, lambda *said: wire.send(writer, {"progress": said}))
            wire.send(writer, header, answer)
        except Exception as error:  # every failure is an answer; only a crash ends a worker
            message, code = (str(error), error.code) if isinstance(error, CourseError) else (reason(error), "")
            wire.send(writer, {"error": type(error).__name__, "message": message, "code": code})


def _end_with_parent(reader: int) -> None:
    """End this process when the parent's end of the pipe closes. Otherwise a compiler would run for minutes after its parent was killed."""
    watch = select.poll()
    watch.register(reader, 0)  # no events asked for: only the pipe's end is reported
    watch.poll()
    os._exit(1)


def _build_or_describe(
    request: dict[str, Any], arrays: dict[str, np.ndarray], report: Report
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    if request["do"] == "backends":
        return {"backends": [found.to_json() for found in registry.available_backends()]}, {}
    if request["do"] == "module":
        from course_lib.engines.backends.torch_tensorrt import blocks

        return blocks.answer(request, arrays), {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(request.get("model") or Path(folder, "model.onnx"))
        if "model" in arrays:
            path.write_bytes(arrays["model"].tobytes())
        thinned = at_most_every(0.1, report) if request.get("progress") else None
        plan = registry.compile_plan(request["backend"], path, request["recipe"], thinned)
    return {"plan": plan.to_json()}, {"data": np.frombuffer(plan.data, np.uint8)}


def _load(request: dict[str, Any], arrays: dict[str, np.ndarray]) -> Engine:
    if "plan" in request:
        return registry.load(Plan.from_json(request["plan"], arrays["data"].tobytes()))
    source = request["source"]
    return registry.load(ModelSource(**{**source, "arguments": tuple(source["arguments"])}))
