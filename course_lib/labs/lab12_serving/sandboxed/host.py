"""The process of one server: it runs the learner's two files, passes requests to the server, and returns its answers.

`stage` starts it with a fork, so that a start does not need imports.
"""

from __future__ import annotations

import hashlib
import os
import socket
import threading
import time
import traceback
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from course_lib._util.processes import close_all_but
from course_lib.engines.worker import wire
from course_lib.errors import BuildError, EngineError
from course_lib.labs.lab12_serving.given import FILES, INPUT, Engines, Feeds, misshapen, packed, server_class


@dataclass(frozen=True)
class Start:
    """What a server is started with, and how its engines behave.

    Attributes:
        sources: the learner's files, text by name.
        plans: by digest of the model, a plan's summary and bytes. A model without a plan cannot be built.
        failing: digests of rows. A run with one of them fails.
        run_s: seconds by which each run takes longer.
    """

    sources: Mapping[str, str]
    model: Path
    recipe: Mapping[str, Any]
    cache: Path
    plans: Mapping[str, tuple[dict[str, Any], bytes]]
    version: str
    device: str
    failing: Collection[str] = ()
    run_s: float = 0.0


def row_digest(row: np.ndarray) -> str:
    """SHA-256 of one row of an input, hexadecimal."""
    return hashlib.sha256(row.tobytes()).hexdigest()


def described(error: BaseException) -> str:
    """One line with the error and its place in the learner's files."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in FILES]
    where = f"{frames[-1].filename}, line {frames[-1].lineno}: " if frames else ""
    return " ".join(f"{where}{type(error).__name__} {error}".split())[:300]


class Host:
    """Creates a server and calls it, in one thread for each connection."""

    def __init__(self, start: Start, control: socket.socket) -> None:
        self._start, self._control = start, control
        self._builds, self._reloading, self._asking = 0, False, threading.Lock()
        self._server: Any = None
        self._engines = Engines(start.version, start.device, self._compiled, lambda: self._ask("load"), self._before_run)

    def serve(self, connection: socket.socket) -> None:
        """Answer requests until the other end of the connection is closed."""
        for request, arrays in wire.requests(connection.fileno()):
            status, text, outputs = "ok", "", {}
            try:
                outputs = self._done(request["do"], arrays)
            except BaseException as error:  # whatever a learner's code raises, SystemExit included, is an answer
                status, text = "rejected" if isinstance(error, ValueError) else "error", described(error)
            self._reply(connection, status, text, outputs)

    def _done(self, what: str, feeds: Feeds) -> dict[str, np.ndarray]:
        start = self._start
        if what == "answer":
            answer: dict[str, np.ndarray] = self._server.answer(feeds)
            if problem := misshapen(answer, len(feeds.get(INPUT, ()))):
                raise TypeError(problem)
            return answer
        if what == "start":
            self._server = server_class(start.sources)(start.model, start.recipe, start.cache, self._engines)
        else:
            self._reloading = True
            try:
                self._server.reload(start.model)
            finally:
                self._reloading = False
        return {}

    def _reply(self, connection: socket.socket, status: str, text: str, outputs: Feeds) -> None:
        reply = {"status": status, "text": text, "runs": self._engines.runs, "builds": self._builds}
        wire.send(connection.fileno(), reply, outputs)

    def _ask(self, what: str) -> None:
        """Wait for a permit. Only a reload needs it."""
        if self._reloading:
            with self._asking:
                self._reply(self._control, "asks", what, {})
                wire.receive(self._control.fileno())

    def _compiled(self, model: bytes, recipe: Mapping[str, Any]) -> bytes:
        self._builds += 1
        self._ask("build")
        start = self._start
        summary, plan = start.plans.get(hashlib.sha256(model).hexdigest(), ({}, b""))
        if not plan or recipe != start.recipe:
            raise BuildError("the compiler rejects this model or recipe")
        return packed({"version": start.version, "device": start.device, "plan": summary}, plan)

    def _before_run(self, feeds: Feeds) -> None:
        time.sleep(self._start.run_s)
        failing = self._start.failing
        if failing and any(row_digest(row) in failing for rows in feeds.values() if rows.ndim for row in rows):
            raise EngineError("CUDA error 700: an illegal memory access was encountered")


def fork(start: Start, clients: int) -> tuple[int, list[socket.socket]]:
    """Fork the process of a server. Returns its id, and sockets: one for starts and reloads, and one for each client."""
    pairs = [socket.socketpair() for _ in range(clients + 1)]
    if pid := os.fork():
        for _, theirs in pairs:
            theirs.close()
        return pid, [ours for ours, _ in pairs]
    try:
        os.setsid()
        close_all_but({theirs.fileno() for _, theirs in pairs})
        host = Host(start, pairs[0][1])
        for _, theirs in pairs[1:]:
            threading.Thread(target=host.serve, args=(theirs,), daemon=True).start()
        host.serve(pairs[0][1])
    finally:
        os._exit(0)
