"""The process that runs a learner's pipeline: a worker in which the pipeline takes the engine's place.

Each ``infer`` transfers the text of pipeline.py, a stream of requests, or the wish for the recorded timeline. The pipeline gets only
requests, an engine and a way to name ranges.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from typing import Any

import numpy as np

from course_lib.errors import CourseError, EngineError
from course_lib.labs.framework.learner_code import OnlyPackages, described, loaded

FILE = "pipeline.py"
START = "start"  # the range of what happens once, before any request
MOST_OPEN = 2  # requests that a pipeline may have received and not answered: one in the engine, the next one in preparation
WAIT_S = 5.0  # for room to read one more
# The exceptions with hints. The judge takes no other name from this process.
CODES = EMPTY, READS_AHEAD = "NotImplementedError", "ReadsAhead"


class PlainEngine:
    """The engine that a pipeline gets: images in, logits out."""

    def __init__(self, plan: Any, work: Callable[[str], AbstractContextManager[Any]] = nullcontext) -> None:
        from course_lib.engines import load

        self._engine, self._work = load(plan), work

    def infer(self, images: np.ndarray) -> np.ndarray:
        """Logits, float32 ``(n, 10)``, of images, float32 ``(n, 1, 32, 32)``, n from 1 to 32."""
        with self._work("engine"):
            return self._engine.infer({"image": images})["logits"]


class ReadsAhead(RuntimeError):
    """A pipeline read more requests than it answered."""


def one_ahead(requests: Sequence[list[bytes]], room: threading.Semaphore, answering: int) -> Iterator[list[bytes]]:
    """The stream for a pipeline, which gives a request only while there is `room` for one more that is not answered.

    A thread that reads ahead waits, as it would at a socket. The thread `answering` cannot wait for itself: it gets an error.
    """
    for request in requests:
        if not room.acquire(timeout=0 if threading.get_ident() == answering else WAIT_S):
            raise ReadsAhead(f"reads ahead too far: it asks for another request and has not answered {MOST_OPEN}")
        yield request


class Service:
    """A pipeline in place of an engine."""

    inputs = outputs = ()
    _pipeline: Any
    _recorder: Any

    def __init__(self, plan: Any) -> None:
        self._plan = plan
        PlainEngine(plan).infer(np.zeros((1, 1, 32, 32), np.float32))  # imports all that engines need

    def infer(self, asked: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Start a pipeline, run a stream through it, or return what was recorded."""
        try:
            if "source" in asked:
                return self._start(asked["source"].tobytes().decode("utf-8-sig"), bool(asked["record"]))
            if "sizes" in asked:
                return self._run(asked)
            return {"timeline": np.frombuffer(json.dumps(asdict(self._recorder.timeline())).encode(), np.uint8)}
        except BaseException as error:  # whatever a learner's code raises, SystemExit included, is an answer
            code = error.code if isinstance(error, CourseError) else type(error).__name__
            raise EngineError(f"{FILE}: {described(error, FILE)}", code=code) from None

    def _start(self, source: str, record: bool) -> dict[str, np.ndarray]:
        span: Any = nullcontext
        work = span
        if record:
            from course_lib.profiling.timelines.recorder import Recorder

            self._recorder = Recorder()
            span, work = self._recorder.span, self._recorder.work
        with span(START):  # it looks for NVTX: later nothing can be imported
            sys.meta_path.insert(0, OnlyPackages("numpy"))
            module = loaded(source, FILE)
            if not hasattr(module, "Pipeline"):
                raise NameError("it defines no class Pipeline")
            self._pipeline = module.Pipeline(lambda: PlainEngine(self._plan, work), span)
        return {}

    def _run(self, stream: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The logits of each answer, by its number."""
        data, ends = stream["bytes"].tobytes(), np.cumsum(stream["lengths"]).tolist()
        scans = iter([data[start:end] for start, end in zip([0, *ends], ends, strict=False)])
        requests = [[next(scans) for _ in range(size)] for size in stream["sizes"].tolist()]
        room = threading.Semaphore(MOST_OPEN)
        answers: dict[str, np.ndarray] = {}
        for answer in self._pipeline.run(one_ahead(requests, room, threading.get_ident())):
            logits = answers[str(len(answers))] = np.array(answer, np.float32)
            if logits.ndim != 2 or logits.shape[1] != 10:
                raise ValueError(f"answer {len(answers) - 1} has shape {logits.shape}, expected (scans, 10)")
            room.release()
        return answers


def serve() -> None:
    """Answer a `Worker`'s messages. Output of the learner's code goes to the log."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # before anything looks for one: the engine has no GPU on any machine
    from course_lib.engines import Plan
    from course_lib.engines.worker import child

    child.serve(lambda request, arrays: Service(Plan.from_json(request["plan"], arrays["data"].tobytes())))
