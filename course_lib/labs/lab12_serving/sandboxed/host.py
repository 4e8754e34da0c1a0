"""The process of one server: it runs the learner's two files, passes requests to the server, and returns its answers.

`stage` starts it with a fork, so that a start does not need imports. The notebook uses `Engines` and `server_class` in its own process.
"""

from __future__ import annotations

import builtins
import contextlib
import hashlib
import json
import os
import queue
import signal
import socket
import struct
import sys
import threading
import time
import traceback
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from course_lib.engines import registry
from course_lib.engines.layers import LayerTable
from course_lib.engines.plan import Engine, Plan
from course_lib.engines.worker import wire
from course_lib.errors import BuildError, EngineError, PlanError

FEATURES, SCORES = 256, 8
INPUT, OUTPUT = "features", "scores"
MOST_ROWS = 16  # rows of one inference, as the recipe declares
FILES = ("store.py", "server.py")
_DESCRIPTORS = 512  # of a server: fewer than the processes that start servers have, see ETOOMANYREFS in unix(7)
_THREADS = 32  # requests that the server may work on at once
_PERMITTED = {*sys.stdlib_module_names, "numpy", "store", "server"}
Feeds = Mapping[str, np.ndarray]


def import_numpy_only(name: str, *arguments: Any) -> types.ModuleType:
    """``__import__`` for the learner's files.

    Raises:
        ImportError: the module is neither NumPy nor part of Python.
    """
    if name.partition(".")[0] not in _PERMITTED:
        raise ImportError(f"the server may import numpy and Python's own modules, not {name!r}")
    return builtins.__import__(name, *arguments)


def server_class(sources: Mapping[str, str]) -> Callable[..., Any]:
    """The ``Server`` of the learner's two files, which run as modules ``store`` and ``server``.

    A ``NotImplementedError`` is suppressed: the released file ends like that, below a server that works.

    Raises:
        NameError: ``server.py`` defines no class ``Server``.
        Exception: what the files raise.
    """
    for file in FILES:
        module = types.ModuleType(file.removesuffix(".py"))
        sys.modules[module.__name__] = module  # server.py imports store
        vars(module)["__builtins__"] = {**vars(builtins), "__import__": import_numpy_only}
        with contextlib.suppress(NotImplementedError):
            exec(compile(sources[file], file, "exec"), vars(module))
    if (factory := vars(module).get("Server")) is None:  # of the last file
        raise NameError("server.py defines no class Server, or raises NotImplementedError above it")
    return cast(Callable[..., Any], factory)


def packed(label: Mapping[str, Any], data: bytes) -> bytes:
    """A plan in the form that a server receives: a line with its version, its device and its summary, then the engine's bytes."""
    return json.dumps(label).encode() + b"\n" + data


class Engines:
    """What a server receives: `build`, `load`, and what plans depend on.

    Attributes:
        version: of the compiler and the runtime.
        device: compute capability of the GPU, such as ``"sm90"``, or ``"cpu"``.
        runs: number of inferences so far.
    """

    BuildError, PlanError, EngineError = BuildError, PlanError, EngineError

    def __init__(
        self,
        version: str,
        device: str,
        compiled: Callable[[bytes, Mapping[str, Any]], bytes],
        before_load: Callable[[], object] = lambda: None,
        before_run: Callable[[Feeds], object] = lambda feeds: None,
    ) -> None:
        self.version, self.device, self.runs = version, device, 0
        self._compiled, self._before_load, self.before_run = compiled, before_load, before_run

    def build(self, model: bytes, recipe: Mapping[str, Any]) -> bytes:
        """Compile a serialized ONNX model, which takes long.

        Raises:
            BuildError: the compiler failed.
        """
        return self._compiled(model, recipe)

    def load(self, plan: bytes) -> Context:
        """An engine with one execution context. As with TensorRT, a damaged plan may load without an error.

        Raises:
            PlanError: the data is not a plan, or belongs to another version or device.
        """
        self._before_load()
        label, _, data = bytes(plan).partition(b"\n")
        try:
            built = json.loads(label)
            found = Plan.from_json({**built["plan"], "layers": LayerTable((), {}).to_json()}, data)
            built_by = built["version"], built["device"]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise PlanError("the data is not a plan") from None
        if built_by != (self.version, self.device):
            raise PlanError(f"the plan was built by {' on '.join(built_by)}, this is {self.version} on {self.device}")
        try:
            return Context(registry.load(found), self)
        except Exception as error:  # a damaged plan can fail in more ways than backends have classes for
            raise PlanError(f"the plan cannot be loaded: {error}"[:200]) from None


class Context:
    """An engine's execution context. One thread at a time may use it."""

    def __init__(self, engine: Engine, engines: Engines) -> None:
        self._engine, self._engines, self._one = engine, engines, threading.Lock()

    def infer(self, feeds: Feeds) -> dict[str, np.ndarray]:
        """Outputs by name for inputs by name.

        Raises:
            EngineError: the inference failed, or another thread uses this context.
        """
        if not self._one.acquire(blocking=False):
            raise EngineError("two threads in one execution context: TensorRT does not allow it")
        try:
            self._engines.runs += 1
            self._engines.before_run(feeds)
            return self._engine.infer(dict(feeds))
        finally:
            self._one.release()


def misshapen(answer: Any, rows: int) -> str:
    """How a server's answer differs in form from the scores of so many rows; empty if it does not."""
    if isinstance(answer, dict) and set(answer) == {OUTPUT} and _kind(answer[OUTPUT]) == f"float32 ({rows}, {SCORES})":
        return ""
    found = ", ".join(f"{name!r}: {_kind(value)}" for name, value in answer.items()) if isinstance(answer, dict) else ""
    shown = f"{{{found}}}" if isinstance(answer, dict) else _kind(answer)
    return f"answer returned {shown[:200]}, expected {{{OUTPUT!r}: float32 ({rows}, {SCORES})}}: check its `return`"


def _kind(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape}"
    return "None" if value is None else type(value).__name__


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
        limit_files(start["file_bytes"], start["dies"])
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


def limit_files(size: int | None, dies: bool) -> None:
    """Limit files to `size` bytes, as a full disk does; with `dies`, a write that reaches the limit kills the process."""
    if size is not None:
        limit("CORE", 0)
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL if dies else signal.SIG_IGN)
        limit("FSIZE", size)


def limit(name: str, most: int) -> None:
    """Limit what this process and its children may use; see setrlimit(2)."""
    import resource  # there is none on Windows, where the notebook works

    resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (most, most))


def nursery() -> socket.socket:
    """Fork the process that starts servers, see `start`. It has neither this one's later memory nor its output."""
    ours, asked = socket.socketpair()
    if os.fork():
        asked.close()
        return ours
    try:
        ours.close()
        with open(os.devnull, "r+b") as nowhere:
            for descriptor in (0, 1, 2):
                os.dup2(nowhere.fileno(), descriptor)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps them
        while (received := socket.recv_fds(asked, 1, 1))[0]:
            (connection,) = received[1]
            if (pid := os.fork()) == 0:
                asked.close()
                os.setsid()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                limit("NOFILE", _DESCRIPTORS)
                Host(connection).run()
                break
            os.close(connection)
            asked.sendall(struct.pack("<i", pid))
    finally:
        os._exit(0)


def start(nursery: socket.socket) -> tuple[int, socket.socket]:
    """Start a server's process. Returns its id and a socket to it.

    Raises:
        OSError: the process that starts servers has ended.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        socket.send_fds(nursery, [b"+"], [theirs.fileno()])
    if len(answer := nursery.recv(4, socket.MSG_WAITALL)) < 4:
        raise ConnectionError("the process that starts servers has ended")
    return struct.unpack("<i", answer)[0], ours
