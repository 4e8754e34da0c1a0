"""The process of one server: it runs the learner's two files, passes requests to the server, and returns its answers.

`stage` starts it with a fork, so that a start does not need imports.
"""

from __future__ import annotations

import hashlib
import os
import queue
import signal
import socket
import threading
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from course_lib.engines.worker import wire
from course_lib.errors import BuildError, EngineError
from course_lib.labs.lab12_serving.given import FILES, Engines, Feeds, misshapen, server_class

_THREADS = 32  # requests that the server may work on at once


def row_digest(row: np.ndarray) -> str:
    """SHA-256 of one row of an input, hexadecimal."""
    return hashlib.sha256(row.tobytes()).hexdigest()


def described(error: BaseException) -> str:
    """One line with the error and its place in the learner's files."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in FILES]
    where = f"{frames[-1].filename}, line {frames[-1].lineno}: " if frames else ""
    return " ".join(f"{where}{type(error).__name__} {error}".split())[:300]


class Host:
    """Creates a server and calls it, each request in its own thread. The other end of the socket permits builds and loads."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._writing = descriptor, threading.Lock()
        self._asked: dict[int, queue.SimpleQueue[Any]] = {}
        self._jobs: queue.SimpleQueue[tuple[dict[str, Any], dict[str, np.ndarray]]] = queue.SimpleQueue()
        self._server: Any = None

    def run(self) -> None:
        """Serve until the other end of the socket is closed."""
        start, _ = wire.receive(self._descriptor)
        failing = frozenset(start["failing"])

        def before_run(feeds: Feeds) -> None:
            time.sleep(start["run_s"])
            if failing and any(row_digest(row) in failing for rows in feeds.values() if rows.ndim for row in rows):
                raise EngineError("CUDA error 700: an illegal memory access was encountered")

        self._engines = Engines(start["version"], start["device"], self._compiled, lambda: self._permitted("load"), before_run)
        for _ in range(_THREADS):
            threading.Thread(target=self._work, daemon=True).start()
        self._jobs.put((start, {}))
        for header, arrays in wire.requests(self._descriptor):
            if header["do"] == "permit":
                self._asked.pop(header["id"]).put((header, arrays))
            else:
                self._jobs.put((header, arrays))

    def _compiled(self, model: bytes, recipe: Mapping[str, Any]) -> bytes:
        return self._permitted("build", model=hashlib.sha256(model).hexdigest(), recipe=dict(recipe))["plan"].tobytes()

    def _permitted(self, what: str, **details: Any) -> dict[str, np.ndarray]:
        """What the other end answers, or its BuildError."""
        answer: queue.SimpleQueue[tuple[dict[str, Any], dict[str, np.ndarray]]] = queue.SimpleQueue()
        self._asked[id(answer)] = answer
        self._send({"do": what, "id": id(answer), **details})
        header, arrays = answer.get()
        if header["error"]:
            raise BuildError(header["error"])
        return arrays

    def _send(self, header: dict[str, Any], arrays: Feeds | None = None) -> None:
        with self._writing:
            wire.send(self._descriptor, header, arrays)

    def _work(self) -> None:
        while True:
            header, arrays = self._jobs.get()
            reply: dict[str, Any] = {"do": "reply", "id": header["id"], "status": "ok"}
            try:
                outputs = self._done(header, arrays)
            except BaseException as error:  # whatever a learner's code raises, SystemExit included, is an answer
                outputs, reply["status"] = {}, "rejected" if isinstance(error, ValueError) else "error"
                reply["text"] = described(error)
            self._send({**reply, "runs": self._engines.runs}, outputs)

    def _done(self, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        if header["do"] == "answer":
            answer: dict[str, np.ndarray] = self._server.answer(arrays)
            if problem := misshapen(answer, next((len(rows) for rows in arrays.values() if rows.ndim), 0)):
                raise TypeError(problem)
            return answer
        if header["do"] == "reload":
            self._server.reload(Path(header["model"]))
        else:
            factory = server_class(header["sources"])
            self._server = factory(Path(header["model"]), header["recipe"], Path(header["cache"]), self._engines)
        return {}


def start() -> tuple[int, socket.socket]:
    """Fork the process of a server, without this one's input and output. Returns its id and a socket to it."""
    ours, theirs = socket.socketpair()
    if pid := os.fork():
        theirs.close()
        return pid, ours
    try:
        ours.close()
        with open(os.devnull, "r+b") as nowhere:
            for descriptor in (0, 1, 2):
                os.dup2(nowhere.fileno(), descriptor)
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        Host(theirs.fileno()).run()
    finally:
        os._exit(0)
