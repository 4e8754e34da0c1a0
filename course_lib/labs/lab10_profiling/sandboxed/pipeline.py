"""The process that runs a learner's pipeline, below a `stream_host`.

``load`` transfers the plan. Each ``infer`` then transfers the text of pipeline.py or a request for the recorded timeline, and
``stream`` announces requests, which follow one at a time. The pipeline gets only requests, an engine and a way to name ranges.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

import numpy as np

from course_lib.labs.framework.sandboxed.learner_code import OnlyPackages, described, loaded

FILE = "pipeline.py"
ENGINE_ROW = "engine"  # the row of a timeline on which the engine's own work stands
START = "start"  # the row and the range of what happens once, before any request
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
    """The stream for a pipeline. It gives a request only while fewer than `most_in_hand` are unanswered.

    A thread that reads ahead waits, as it would at a socket. The thread that answers cannot wait for itself: it gets an error.
    The host counts too, and what it does not send cannot be read.

    Args:
        receive: waits for the next request.
        count: number of requests.
        most_in_hand: see `stream_host.MOST_IN_HAND`.
    """

    def __init__(self, receive: Callable[[], list[bytes]], count: int, most_in_hand: int) -> None:
        self._receive, self._count, self._most, self._in_hand = receive, count, most_in_hand, 0
        self._changed, self._answering = threading.Condition(), threading.current_thread()

    def __iter__(self) -> Iterator[list[bytes]]:
        for _ in range(self._count):
            with self._changed:
                wait_s = 0.0 if threading.current_thread() is self._answering else WAIT_S
                if not self._changed.wait_for(lambda: self._in_hand < self._most, wait_s):
                    raise ReadsAhead(
                        f"reads ahead too far: it holds {self._most} requests without an answer and asks for another one"
                    )
                self._in_hand += 1
            yield self._receive()

    def answered(self) -> None:
        """Note that one request was answered."""
        with self._changed:
            self._in_hand -= 1
            self._changed.notify_all()


class Pipeline(Protocol):
    """The interface of a learner's `Pipeline`."""

    def run(self, requests: Iterator[list[bytes]]) -> Iterator[np.ndarray]:
        """Logits for the scans of each request, ``(scans, 10)``."""


class Service:
    """Holds the pipeline between two messages.

    Args:
        plan: of the engine.
        connection: descriptor of the socket to the host.
    """

    def __init__(self, plan: Any, connection: int) -> None:
        self._plan, self._connection = plan, connection
        self._pipeline: Pipeline | None = None
        self._recorder: Recorder | None = None
        PlainEngine(plan, None).infer(np.zeros((1, 1, 32, 32), np.float32))  # imports all that engines need

    def answer(self, asked: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Start a pipeline, or return what was recorded."""
        if "source" in asked:
            self._start(asked["source"].tobytes().decode("utf-8-sig"), bool(asked["record"]))
            return {}
        assert self._recorder is not None
        text = "\n".join(f"{start} {end}\t{row}\t{name}" for name, row, start, end in self._recorder.rows)
        return {"events": np.frombuffer(text.encode(), np.uint8)}

    def _start(self, source: str, record: bool) -> None:
        self._recorder = Recorder() if record else None
        span = self._recorder.span if self._recorder else _unnamed
        sys.meta_path.insert(0, OnlyPackages("numpy"))
        with self._recorder.span(START, START) if self._recorder else nullcontext():
            self._pipeline = self._made(source, span)

    def _made(self, source: str, span: Callable[[str], AbstractContextManager[None]]) -> Pipeline:
        module = loaded(source, FILE)
        if not hasattr(module, "Pipeline"):
            raise NameError("it defines no class Pipeline")
        made: Pipeline = module.Pipeline(lambda: PlainEngine(self._plan, self._recorder), span)
        return made

    def run(self, count: int, most_in_hand: int) -> None:
        """Run this number of requests through the pipeline. Each answer is sent when the pipeline gives it.

        Raises:
            ValueError: an answer is not an array ``(scans, 10)``.
        """
        from course_lib.engines.worker import wire

        assert self._pipeline is not None
        requests = Requests(self._receive, count, most_in_hand)
        for index, answer in enumerate(self._pipeline.run(iter(requests))):
            logits = np.asarray(answer)
            if logits.ndim != 2 or logits.shape[1] != 10:
                raise ValueError(f"answer {index} has shape {logits.shape}, expected (scans, 10)")
            wire.send(self._connection, {}, {"logits": logits.astype(np.float32)})
            requests.answered()

    def _receive(self) -> list[bytes]:
        from course_lib.engines.worker import wire

        _, request = wire.receive(self._connection)
        data, ends = request["bytes"].tobytes(), np.cumsum(request["lengths"]).tolist()
        return [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def _unnamed(name: str) -> AbstractContextManager[None]:
    return nullcontext()


def serve(connection: int) -> None:
    """Answer the host's messages until it closes the socket with this descriptor."""
    from course_lib.engines import Plan
    from course_lib.engines.worker import wire
    from course_lib.errors import CourseError

    service: Service | None = None
    for request, arrays in wire.requests(connection):
        if request["do"] == "request":
            continue  # of a stream that ended early
        try:
            answer: dict[str, np.ndarray] = {}
            if request["do"] == "load":
                service = Service(Plan.from_json(request["plan"], arrays["data"].tobytes()), connection)
            else:
                assert service is not None
                if request["do"] == "stream":
                    service.run(request["requests"], request["in_hand"])
                else:
                    answer = service.answer(arrays)
            wire.send(connection, {}, answer)
        except BaseException as error:  # whatever a learner's code raises, SystemExit included, is an answer
            code = error.code if isinstance(error, CourseError) else type(error).__name__
            wire.send(connection, {"error": "EngineError", "message": f"{FILE}: {described(error, FILE)}", "code": code})
