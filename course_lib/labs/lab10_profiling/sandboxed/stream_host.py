"""The process between the judge and a learner's pipeline: it transfers requests one at a time and counts those without an answer.

It uses a worker's protocol, so that its parent can be a `Worker`. It forks the pipeline's process, which runs the learner's code
and the engine, and which has no other way to reach a request. Everything but a stream is passed on unchanged.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
from typing import Any

import numpy as np

MOST_IN_HAND = 2  # requests that a pipeline may have received and not answered: one in the engine, the next one in preparation
_MOST_ANSWER_BYTES = 16 << 20
_SET_DEATH_SIGNAL, _SET_DUMPABLE = 1, 4  # of prctl(2)
_Message = tuple[dict[str, Any], dict[str, np.ndarray]]


class StreamHost:
    """Holds the connection to the pipeline's process.

    Args:
        pipeline: descriptor of a socket to that process.
    """

    def __init__(self, pipeline: int) -> None:
        self._pipeline = pipeline

    def answer(self, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> _Message:
        """What the pipeline's process answers to the judge's message.

        Raises:
            EOFError: it has ended.
            WorkerDied: it sent something else.
        """
        if "sizes" in arrays:
            return self._stream(arrays)
        self._send(header, arrays)
        return self._receive()

    def _stream(self, stream: dict[str, np.ndarray]) -> _Message:
        """Logits ``(rows, 10)`` and the rows of each answer, or the pipeline's error."""
        requests = _requests(stream)
        self._send({"do": "stream", "requests": len(requests), "in_hand": MOST_IN_HAND}, {})
        answers: list[np.ndarray] = []
        sent = 0
        while True:
            while sent < len(requests) and sent - len(answers) < MOST_IN_HAND:
                self._send({"do": "request"}, requests[sent])
                sent += 1
            header, arrays = self._receive()
            if "logits" not in arrays:
                break  # the end of the stream, or an error
            answers.append(arrays["logits"])
        if "error" in header:
            return header, {}
        if any(answer.dtype != np.float32 or answer.ndim != 2 or answer.shape[1] != 10 for answer in answers):
            return {
                "error": "EngineError",
                "message": "the pipeline's process sent an invalid answer",
                "code": "EngineError",
            }, {}
        rows = np.concatenate([np.zeros((0, 10), np.float32), *answers])
        return {}, {"logits": rows, "sizes": np.array([len(answer) for answer in answers], np.int64)}

    def _send(self, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        from course_lib.engines.worker import wire

        wire.send(self._pipeline, header, arrays)

    def _receive(self) -> _Message:
        from course_lib.engines.worker import wire

        return wire.receive(self._pipeline, most_bytes=_MOST_ANSWER_BYTES)


def _requests(stream: dict[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
    """A stream's requests, each with the bytes and the lengths of its scans."""
    offsets = np.concatenate([[0], np.cumsum(stream["lengths"])]).astype(np.int64)
    ends = np.cumsum(stream["sizes"])
    return [
        {"bytes": stream["bytes"][offsets[end - size] : offsets[end]], "lengths": stream["lengths"][end - size : end]}
        for size, end in zip(stream["sizes"].tolist(), ends.tolist(), strict=True)
    ]


def serve(library: str) -> None:
    """Answer a `Worker`'s requests until standard input closes. Output of the learner's code goes to the log."""
    sys.path.insert(0, library)
    from course_lib.engines.worker import wire
    from course_lib.errors import WorkerDied

    reader, writer = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    ours, theirs = socket.socketpair()
    if (pipeline := os.fork()) == 0:
        for descriptor in (reader, writer, ours.detach()):
            os.close(descriptor)
        _run_pipeline(theirs.detach())
    theirs.close()
    _prctl(_SET_DUMPABLE, 0)  # the pipeline's process cannot look into this one
    host = StreamHost(ours.fileno())
    for header, arrays in wire.requests(reader):
        try:
            answered, found = host.answer(header, arrays)
        except WorkerDied as error:
            answered, found = {"error": "EngineError", "message": str(error), "code": "EngineError"}, {}
        except (EOFError, ConnectionError):
            _end_like(pipeline)
        wire.send(writer, {"inputs": [], "outputs": [], **answered}, found)


def _run_pipeline(connection: int) -> None:
    """Run the pipeline's side in this process, which ends with its parent."""
    from course_lib.labs.lab10_profiling.sandboxed import pipeline

    _prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
    try:
        with open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        pipeline.serve(connection)
    finally:
        os._exit(0)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _end_like(child: int) -> None:
    """End as the child process ended, so that the judge sees how."""
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status < 0:
        os.kill(os.getpid(), -status)
    os._exit(status)


if __name__ == "__main__":
    serve(sys.argv[-1])
