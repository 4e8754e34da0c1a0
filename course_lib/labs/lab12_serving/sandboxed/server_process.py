"""The supervisor's side of a server process: it sends requests, receives answers with their times, and answers build requests."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import queue
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from course_lib.engines.worker import wire
from course_lib.errors import WorkerDied
from course_lib.labs.lab12_serving.sandboxed.isolation import descendants, send
from course_lib.labs.lab12_serving.sandboxed.server_host import READY

READY_S, ANSWER_S = 10.0, 5.0  # longest wait for a server to come up or to reload, and for one answer
NOT_UP = "it was not up after"
RAISED = ("error", "rejected")  # the statuses of a ticket that ended in an exception
NOT_TRIED = "not tried: the scenes before it took all the time"


@dataclass
class Ticket:
    """One request and its result.

    Attributes:
        status: ``"ok"``, ``"rejected"`` for a ValueError, ``"error"`` for another exception, ``"none"`` without an answer.
        empty: the exception was a NotImplementedError, so the body is not written yet.
        latency_s: time from sending to the answer, on the supervisor's clock.
        client: number of the client that sent it; -1 if it was not sent.
    """

    status: str = "none"
    text: str = ""
    empty: bool = False
    outputs: dict[str, np.ndarray] = field(default_factory=dict)
    sent: float = 0.0
    latency_s: float = 0.0
    client: int = -1
    finished: threading.Event = field(default_factory=threading.Event, repr=False)

    @property
    def waited_s(self) -> float:
        """How long the client waited: for the answer, or in vain. It is 0 if the process died."""
        return self.latency_s if self.finished.is_set() else ANSWER_S

    def overlaps(self, other: Ticket) -> bool:
        """Whether both were in flight at some moment. Both must have ended."""
        return self.sent < other.sent + other.latency_s and other.sent < self.sent + self.latency_s


@dataclass
class Builder:
    """The compiler, as far as a server can tell: it counts builds, and can fail or be delayed.

    Attributes:
        plans: description and data by digest of the model and recipe.
        failure: the text of its error; empty if it works.
        gate: no plan is returned before it is set.
        delay_s: each build takes this long.
    """

    plans: Mapping[str, tuple[dict[str, Any], np.ndarray]]
    failure: str = ""
    gate: threading.Event = field(default_factory=threading.Event)
    asked: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    builds: int = 0
    delay_s: float = 0.0

    def __post_init__(self) -> None:
        self.gate.set()

    def build(self, header: dict[str, Any], stamp: dict[str, Any]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """The answer to a server that asks for a plan: a header, and the plan's bytes as ``data``, uint8 ``(n,)``."""
        self.builds += 1
        self.asked.release()
        self.gate.wait(READY_S)
        time.sleep(self.delay_s)
        reply = {"do": "built", "id": header["id"]}
        found = self.plans.get(plan_key(str(header["model"]), header["recipe"]))
        if self.failure or found is None:
            return {**reply, "error": self.failure or "the compiler was given another model or recipe"}, {}
        return {**reply, "plan": {**stamp, "plan": found[0]}}, {"data": found[1]}


def plan_key(model_sha256: str, recipe: Any) -> str:
    """SHA-256 of the model's digest and the recipe, hexadecimal: the key of `Builder.plans`."""
    return hashlib.sha256(f"{model_sha256}{json.dumps(recipe, sort_keys=True)}".encode()).hexdigest()


class Nursery:
    """Starts server processes, by forks of one that has imported everything. Use it as a context manager.

    Args:
        interpreter: command of the Python that runs the engines.
        backend: name of their backend.
    """

    def __init__(self, interpreter: Sequence[str], backend: str) -> None:
        import course_lib

        child, library = Path(__file__).with_name("server_host.py"), Path(course_lib.__file__).resolve().parent.parent
        self._socket, theirs = socket.socketpair()
        quiet = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        with theirs:
            command = [*interpreter, str(child), str(library), backend]
            self._process = subprocess.Popen(command, stdin=theirs.fileno(), stderr=subprocess.PIPE, env=quiet)

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        self._process.kill()
        self._process.communicate()

    def failed(self) -> str:
        """Why the process cannot start servers, in one line; empty if it can. No learner code has run before the first start."""
        if self._socket.recv(1) == READY:
            return ""
        lines = self._process.communicate()[1].decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "it gave no reason")[:300]

    def start(self) -> tuple[int, int, int]:
        """Start a process: its id, and the descriptors of the pipes to it and from it."""
        to_read, to = os.pipe()
        source, to_write = os.pipe()
        socket.send_fds(self._socket, [b"+"], [to_read, to_write])
        os.close(to_read)
        os.close(to_write)
        (pid,) = struct.unpack("<i", self._socket.recv(4, socket.MSG_WAITALL))
        return pid, to, source


class ServerProcess:
    """A server in its own process. Use it as a context manager; leaving it ends the process and its children.

    Args:
        nursery: starts the process.
        begin: the start parameters of the server; see `server_host.Child`.
        builder: answers its builds.
    """

    def __init__(self, nursery: Nursery, begin: dict[str, Any], builder: Builder) -> None:
        self.pid, self._to, self._source = nursery.start()
        self._builder, self._stamp = builder, {"version": begin["version"], "device": begin["device"]}
        self._lock, self._next = threading.Lock(), 0
        self._open: dict[int, tuple[Ticket, queue.SimpleQueue[Ticket]]] = {}
        self._dead = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._up = self._last = self._ask({"do": "start", **begin})

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        send({self.pid} | descendants(self.pid), signal.SIGKILL)
        self._reader.join(READY_S)  # it ends with the process
        with self._lock:
            os.close(self._to)
            os.close(self._source)
            self._dead = True

    @property
    def empty(self) -> bool:
        """Whether the server did not start because its code is not written yet."""
        return self._up.empty

    def wait_ready(self) -> str:
        """Wait until the server is up. The result is empty, or the reason why it is not up."""
        if not self._up.finished.wait(READY_S):
            return f"{NOT_UP} {READY_S:g} s"
        return {"ok": "", "none": "its process died"}.get(self._up.status, self._up.text)

    def wait_build(self, time_limit_s: float) -> None:
        """Wait for a build request, or until the server has started or failed without one."""
        until = time.monotonic() + time_limit_s
        while time.monotonic() < until and not self._last.finished.is_set():
            if self._builder.asked.acquire(timeout=0.02):
                return

    def reload(self, model: Path) -> Ticket:
        """Ask for another model."""
        while self._builder.asked.acquire(blocking=False):
            pass  # what was asked for before
        self._last = self._ask({"do": "reload", "model": str(model)})
        return self._last

    def answers(self, requests: Sequence[Mapping[str, np.ndarray]], clients: int) -> list[Ticket]:
        """One ticket for each request. Each of `clients` sends its next request when it has the previous answer."""
        done: queue.SimpleQueue[Ticket] = queue.SimpleQueue()
        tickets = [self._ask({"do": "answer"}, feeds, done, client) for client, feeds in enumerate(requests[:clients])]
        for feeds in [*requests[clients:], *[None] * len(tickets)]:
            try:
                client = done.get(timeout=ANSWER_S).client
            except queue.Empty:
                break
            if feeds is not None:
                tickets.append(self._ask({"do": "answer"}, feeds, done, client))
        return tickets + [Ticket() for _ in requests[len(tickets) :]]

    def _ask(
        self,
        header: dict[str, Any],
        feeds: Mapping[str, np.ndarray] | None = None,
        done: queue.SimpleQueue[Ticket] | None = None,
        client: int = -1,
    ) -> Ticket:
        """Send something to the server. When the answer arrives, the ticket is finished and put into the queue `done`."""
        ticket = Ticket(client=client)
        with self._lock:
            self._next += 1
            self._open[self._next] = ticket, done or queue.SimpleQueue()
            ticket.sent = time.perf_counter()
            self._send({**header, "id": self._next}, feeds or {})
        if self._dead:
            self._close()
        return ticket

    def _send(self, header: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        with contextlib.suppress(BrokenPipeError):
            wire.send(self._to, header, arrays)

    def _read(self) -> None:
        with contextlib.suppress(EOFError, OSError, WorkerDied, KeyError, TypeError, ValueError):  # it may say anything
            while True:
                header, arrays = wire.receive(self._source)
                now = time.perf_counter()
                if header.get("do") == "build":
                    threading.Thread(target=self._build, args=(header,), daemon=True).start()
                    continue
                ticket, done = self._open.pop(header["id"])
                ticket.status, ticket.text = str(header["status"]), str(header.get("text", ""))[:300]
                ticket.empty, ticket.outputs, ticket.latency_s = bool(header.get("empty")), arrays, now - ticket.sent
                ticket.finished.set()
                done.put(ticket)
        self._dead = True
        self._close()

    def _build(self, header: dict[str, Any]) -> None:
        reply = self._builder.build(header, self._stamp)
        with self._lock:
            if not self._dead:
                self._send(*reply)

    def _close(self) -> None:
        """Finish all tickets, because no more answers will arrive."""
        while self._open:
            with contextlib.suppress(KeyError):
                ticket, done = self._open.popitem()[1]
                ticket.finished.set()
                done.put(ticket)
