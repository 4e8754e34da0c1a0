"""The process that runs a learner's pipeline: a worker in which the pipeline takes the engine's place.

Each ``infer`` transfers the text of pipeline.py, a stream of requests, or the wish for the recorded timeline. The pipeline gets only
requests, an engine and a way to name ranges.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

from course_lib.errors import CourseError, EngineError
from course_lib.labs.framework.learner_code import OnlyPackages, described, loaded

FILE = "pipeline.py"
ENGINE_ROW = "engine"  # the row of a timeline with the engine's own work
START = "start"  # the row and the range of what happens once, before any request
MOST_OPEN = 2  # requests that a pipeline may have received and not answered: one in the engine, the next one in preparation
WAIT_S = 5.0  # for room to read one more
EMPTY, READS_AHEAD = "NotImplementedError", "ReadsAhead"
# The exceptions with hints. The judge takes no other name from this process.
CODES = (EMPTY, READS_AHEAD)


class Recorder:
    """Ranges with the thread that ran them. With NVTX installed, they are also NVTX ranges, for Nsight Systems."""

    def __init__(self) -> None:
        from course_lib.profiling.timelines.ranges import nvtx_range

        self.rows: list[tuple[str, str, int, int]] = []  # name, row, start and end in ns
        self._range = nvtx_range
        with nvtx_range("recording starts"):  # it looks for NVTX now: later nothing can be imported
            pass

    @contextmanager
    def span(self, name: str, row: str = "") -> Iterator[None]:
        """Record the block as a range called `name`."""
        row, started = row or threading.current_thread().name, time.perf_counter_ns()
        try:
            with self._range(name):
                yield
        finally:
            self.rows.append((name, row, started, time.perf_counter_ns()))


class PlainEngine:
    """The engine that a pipeline gets: images in, logits out."""

    def __init__(self, plan: Any, recorder: Recorder | None) -> None:
        from course_lib.engines import load

        self._engine, self._recorder = load(plan), recorder

    def infer(self, images: np.ndarray) -> np.ndarray:
        """Logits, float32 ``(n, 10)``, of images, float32 ``(n, 1, 32, 32)``, n from 1 to 32."""
        with self._recorder.span("engine", ENGINE_ROW) if self._recorder else nullcontext():
            return self._engine.infer({"image": images})["logits"]


class ReadsAhead(RuntimeError):
    """A pipeline read more requests than it answered."""


class Requests:
    """The stream for a pipeline. It gives a request only while fewer than `MOST_OPEN` are unanswered.

    A thread that reads ahead waits, as it would at a socket. The thread that answers cannot wait for itself: it gets an error.
    """

    def __init__(self, requests: Sequence[list[bytes]]) -> None:
        self._requests, self._room, self._answering = requests, threading.Semaphore(MOST_OPEN), threading.get_ident()
        self.answered = self._room.release

    def __iter__(self) -> Iterator[list[bytes]]:
        for request in self._requests:
            if not self._room.acquire(timeout=0 if threading.get_ident() == self._answering else WAIT_S):
                raise ReadsAhead(
                    f"reads ahead too far: it holds {MOST_OPEN} requests without an answer and asks for another one"
                )
            yield request


class Service:
    """A pipeline in place of an engine."""

    inputs = outputs = ()

    def __init__(self, plan: Any) -> None:
        self._plan = plan
        self._pipeline: Any = None
        self._recorder: Recorder | None = None
        PlainEngine(plan, None).infer(np.zeros((1, 1, 32, 32), np.float32))  # imports all that engines need

    def infer(self, asked: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Start a pipeline, run a stream through it, or return what was recorded."""
        try:
            if "source" in asked:
                self._start(asked["source"].tobytes().decode("utf-8-sig"), bool(asked["record"]))
                return {}
            if "sizes" in asked:
                return self._run(asked)
            assert self._recorder is not None
            return {"events": np.frombuffer(json.dumps(self._recorder.rows).encode(), np.uint8)}
        except BaseException as error:  # whatever a learner's code raises, SystemExit included, is an answer
            code = error.code if isinstance(error, CourseError) else type(error).__name__
            raise EngineError(f"{FILE}: {described(error, FILE)}", code=code) from None

    def _start(self, source: str, record: bool) -> None:
        self._recorder = Recorder() if record else None
        span = self._recorder.span if self._recorder else lambda name: nullcontext()
        sys.meta_path.insert(0, OnlyPackages("numpy"))
        with self._recorder.span(START, START) if self._recorder else nullcontext():
            module = loaded(source, FILE)
            if not hasattr(module, "Pipeline"):
                raise NameError("it defines no class Pipeline")
            self._pipeline = module.Pipeline(lambda: PlainEngine(self._plan, self._recorder), span)

    def _run(self, stream: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The logits of each answer, by its number.

        Raises:
            ValueError: an answer is not an array ``(scans, 10)``.
        """
        data, ends = stream["bytes"].tobytes(), np.cumsum(stream["lengths"]).tolist()
        scans = iter([data[start:end] for start, end in zip([0, *ends], ends, strict=False)])
        requests = Requests([[next(scans) for _ in range(size)] for size in stream["sizes"].tolist()])
        answers: dict[str, np.ndarray] = {}
        for answer in self._pipeline.run(iter(requests)):
            logits = answers[str(len(answers))] = np.array(answer, np.float32)
            if logits.ndim != 2 or logits.shape[1] != 10:
                raise ValueError(f"answer {len(answers) - 1} has shape {logits.shape}, expected (scans, 10)")
            requests.answered()
        return answers


def serve() -> None:
    """Answer a `Worker`'s messages. Output of the learner's code goes to the log."""
    from course_lib.engines import Plan
    from course_lib.engines.worker import child

    child.serve(lambda request, arrays: Service(Plan.from_json(request["plan"], arrays["data"].tobytes())))
