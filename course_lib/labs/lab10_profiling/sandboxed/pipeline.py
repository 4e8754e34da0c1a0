"""The process that runs a learner's pipeline: a worker's protocol, in which the engine's place is taken by the pipeline.

``load`` transfers the plan. Each ``infer`` then transfers the text of pipeline.py, a stream of requests, or the wish for the recorded
timeline. The pipeline gets only requests, an engine and a way to name ranges.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

from course_lib.labs.framework.sandboxed.learner_code import OnlyPackages, described, loaded

FILE = "pipeline.py"
ENGINE_ROW = "engine"  # the row of a timeline on which the engine's own work stands
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
        self._requests, self._open = requests, 0
        self._changed, self._answering = threading.Condition(), threading.current_thread()

    def __iter__(self) -> Iterator[list[bytes]]:
        for request in self._requests:
            with self._changed:
                wait_s = 0.0 if threading.current_thread() is self._answering else WAIT_S
                if not self._changed.wait_for(lambda: self._open < MOST_OPEN, wait_s):
                    raise ReadsAhead(
                        f"reads ahead too far: it holds {MOST_OPEN} requests without an answer and asks for another one"
                    )
                self._open += 1
            yield request

    def answered(self) -> None:
        """Note that one request was answered."""
        with self._changed:
            self._open -= 1
            self._changed.notify_all()


class Service:
    """Holds the pipeline between two messages.

    Args:
        plan: of the engine.
    """

    def __init__(self, plan: Any) -> None:
        self._plan = plan
        self._pipeline: Any = None
        self._recorder: Recorder | None = None
        PlainEngine(plan, None).infer(np.zeros((1, 1, 32, 32), np.float32))  # imports all that engines need

    def answer(self, asked: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Start a pipeline, run a stream through it, or return what was recorded."""
        if "source" in asked:
            self._start(asked["source"].tobytes().decode("utf-8-sig"), bool(asked["record"]))
            return {}
        if "sizes" in asked:
            return self._run(asked)
        assert self._recorder is not None
        text = "\n".join(f"{start} {end}\t{row}\t{name}" for name, row, start, end in self._recorder.rows)
        return {"events": np.frombuffer(text.encode(), np.uint8)}

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
        """Logits of all scans, and the rows of each answer.

        Raises:
            ValueError: an answer is not an array ``(scans, 10)``.
        """
        data, ends = stream["bytes"].tobytes(), np.cumsum(stream["lengths"]).tolist()
        scans = iter([data[start:end] for start, end in zip([0, *ends], ends, strict=False)])
        requests = Requests([[next(scans) for _ in range(size)] for size in stream["sizes"].tolist()])
        answers = [np.zeros((0, 10), np.float32)]
        for index, answer in enumerate(self._pipeline.run(iter(requests))):
            logits = np.array(answer, np.float32)
            if logits.ndim != 2 or logits.shape[1] != 10:
                raise ValueError(f"answer {index} has shape {logits.shape}, expected (scans, 10)")
            answers.append(logits)
            requests.answered()
        return {"logits": np.concatenate(answers), "sizes": np.array([len(answer) for answer in answers[1:]], np.int64)}


def serve() -> None:
    """Answer a `Worker`'s messages until standard input closes. Output of the learner's code goes to the log."""
    from course_lib.engines import Plan
    from course_lib.engines.worker import wire
    from course_lib.errors import CourseError

    reader, writer = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    service: Service | None = None
    for request, arrays in wire.requests(reader):
        try:
            answer: dict[str, np.ndarray] = {}
            if request["do"] == "load":
                service = Service(Plan.from_json(request["plan"], arrays["data"].tobytes()))
            else:
                assert service is not None
                answer = service.answer(arrays)
            wire.send(writer, {"inputs": [], "outputs": []}, answer)
        except BaseException as error:  # whatever a learner's code raises, SystemExit included, is an answer
            code = error.code if isinstance(error, CourseError) else type(error).__name__
            wire.send(writer, {"error": "EngineError", "message": f"{FILE}: {described(error, FILE)}", "code": code})
