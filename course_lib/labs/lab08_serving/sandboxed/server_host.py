"""The process that runs a learner's server: source text in, requests in, answers out, over two pipes.

It is started as a file, in the environment of the engines. `nursery` forks a new process for each
request, so that a start does not need imports. The server's `engines`
behave as TensorRT does: a plan belongs to one version and one device, and an execution context to one thread at a time.
"""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import hashlib
import json
import os
import queue
import resource
import signal
import socket
import struct
import sys
import threading
import traceback
import types
from pathlib import Path
from typing import Any

import numpy as np

FILES = ("store.py", "server.py")
THREADS = 32  # requests that the server may work on at once
_PERMITTED = {*sys.stdlib_module_names, "numpy", "store", "server"}
_MAGIC = b"PLAN"
_SET_DUMPABLE = 4  # of prctl(2)


def import_numpy_only(name: str, *arguments: Any) -> types.ModuleType:
    """``__import__`` for the learner's files.

    Raises:
        ImportError: the module is neither NumPy nor part of Python.
    """
    if name.partition(".")[0] not in _PERMITTED:
        raise ImportError(f"the server may import numpy and Python's own modules, not {name!r}")
    return builtins.__import__(name, *arguments)


class BuildError(Exception):
    """The compiler failed."""


class PlanError(Exception):
    """The data is not a plan, or belongs to another version or device."""


class EngineError(Exception):
    """An inference failed."""


def stamped(description: dict[str, Any], data: bytes) -> bytes:
    """A plan in the form that the server receives: a header with version and device, then its bytes."""
    header = json.dumps(description).encode()
    return _MAGIC + struct.pack("<Q", len(header)) + header + data


class Engines:
    """The object that a server gets: `build` and `load`, and the version and device that plans depend on.

    Attributes:
        version: version of the compiler and the runtime.
        device: compute capability of the GPU, such as ``"sm90"``.
    """

    BuildError, PlanError, EngineError = BuildError, PlanError, EngineError

    def __init__(self, pipes: Pipes, version: str, device: str, failing: list[int]) -> None:
        self.version, self.device = version, device
        self._pipes, self._failing, self._runs = pipes, set(failing), 0

    def build(self, model: bytes, recipe: dict[str, Any]) -> bytes:
        """Compile a serialized ONNX model, which takes long.

        Raises:
            BuildError: the compiler failed.
        """
        return self._pipes.build(model, recipe)

    def load(self, plan: bytes) -> Context:
        """An engine with one execution context. As with TensorRT, a damaged plan may load without an error.

        Raises:
            PlanError: the data is not a plan, or belongs to another version or device.
        """
        from course_lib.engines import registry
        from course_lib.engines.layers import LayerTable
        from course_lib.engines.plan import Plan

        try:
            if plan[:4] != _MAGIC:
                raise ValueError("it does not begin like a plan")
            (length,) = struct.unpack_from("<Q", plan, 4)
            header = json.loads(bytes(plan[12 : 12 + length]))
            if (header["version"], header["device"]) != (self.version, self.device):
                built = f"{header['version']} on {header['device']}"
                raise ValueError(f"it was built by {built}, this is {self.version} on {self.device}")
            values: dict[str, Any] = {
                key: tuple(value) if key in ("targets", "notes") else value for key, value in header["plan"].items()
            }
            loaded = registry.load(Plan(data=bytes(plan[12 + length :]), layers=LayerTable((), {}), **values))
        except Exception as error:
            raise PlanError(f"the plan cannot be loaded: {error}"[:200]) from None
        return Context(loaded, self._check_run)

    def _check_run(self) -> None:
        self._runs += 1
        if self._runs in self._failing:
            raise EngineError("CUDA error 700: an illegal memory access was encountered")


class Context:
    """An engine's execution context. One thread at a time may use it."""

    def __init__(self, engine: Any, check_run: Any) -> None:
        self._engine, self._check_run, self._one = engine, check_run, threading.Lock()

    def infer(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs by name for inputs by name.

        Raises:
            EngineError: the inference failed, or another thread uses this context.
        """
        if not self._one.acquire(blocking=False):
            raise EngineError("two threads in one execution context: TensorRT does not allow it")
        try:
            self._check_run()
            outputs: dict[str, np.ndarray] = self._engine.infer(feeds)
            return outputs
        except EngineError:
            raise
        except Exception as error:
            raise EngineError(str(error)[:200]) from None
        finally:
            self._one.release()


class Pipes:
    """Messages to and from the supervisor. Any thread may write, one reads."""

    def __init__(self, reader: int, writer: int) -> None:
        self._reader, self._writer, self._lock = reader, writer, threading.Lock()
        self._builds: dict[int, queue.SimpleQueue[Any]] = {}

    def send(self, header: dict[str, Any], arrays: dict[str, np.ndarray] | None = None) -> None:
        """Send a message to the supervisor; any thread may call it."""
        from course_lib.engines.worker import wire

        with self._lock:
            wire.send(self._writer, header, arrays)

    def receive(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Wait for the next message from the supervisor: its header, and its arrays by name."""
        from course_lib.engines.worker import wire

        return wire.receive(self._reader)

    def build(self, model: bytes, recipe: dict[str, Any]) -> bytes:
        """Have the supervisor compile, and wait for the plan.

        Raises:
            BuildError: the compiler failed.
        """
        answer: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._builds[id(answer)] = answer
        digest = hashlib.sha256(model).hexdigest()
        self.send({"do": "build", "id": id(answer), "model": digest, "recipe": recipe})
        header, arrays = answer.get()
        if "error" in header:
            raise BuildError(header["error"])
        return stamped(header["plan"], arrays["data"].tobytes())

    def built(self, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """Hand the supervisor's answer to the thread that waits in `build`."""
        self._builds.pop(header["id"]).put((header, arrays))


class Child:
    """Starts the server and passes messages to it, each request in its own thread."""

    def __init__(self, pipes: Pipes) -> None:
        self._pipes = pipes
        self._server: Any = None
        self._jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def run(self) -> None:
        """Serve until the pipe closes."""
        begin, _ = self._pipes.receive()
        if begin["apart"]:
            from course_lib.labs.lab08_serving.sandboxed import own_namespace

            own_namespace.set_apart(*([Path(path) for path in begin[key]] for key in ("readable", "writable")))
        limit_files(begin["file_bytes"], begin["die"])
        for _ in range(THREADS):
            threading.Thread(target=self._work, daemon=True).start()
        self._jobs.put((self._start, begin, {}))
        while True:
            header, arrays = self._pipes.receive()
            if header["do"] == "built":
                self._pipes.built(header, arrays)
            else:
                self._jobs.put((self._answer if header["do"] == "answer" else self._reload, header, arrays))

    def _work(self) -> None:
        while True:
            job, header, arrays = self._jobs.get()
            try:
                reply, outputs = job(header, arrays)
                self._pipes.send({"id": header["id"], "status": "ok", **reply}, outputs)
            except ValueError as error:
                self._pipes.send({"id": header["id"], "status": "rejected", "text": said(error)})
            except BaseException as error:  # whatever a learner's code raises, SystemExit included, is an answer
                empty = isinstance(error, NotImplementedError)
                self._pipes.send({"id": header["id"], "status": "error", "text": said(error), "empty": empty})

    def _start(self, begin: dict[str, Any], _: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        for file in FILES:
            module = types.ModuleType(file.removesuffix(".py"))
            sys.modules[module.__name__] = module  # server.py imports store
            vars(module)["__builtins__"] = {**vars(builtins), "__import__": import_numpy_only}
            with contextlib.suppress(NotImplementedError):  # the released file ends like that, below a server that works
                exec(compile(begin["sources"][file], file, "exec"), vars(module))
        engines = Engines(self._pipes, begin["version"], begin["device"], begin["failing"])
        factory = vars(module).get("Server")  # of the last file
        if factory is None:
            raise NameError("server.py defines no class Server")
        self._server = factory(Path(begin["model"]), begin["recipe"], Path(begin["cache"]), engines)
        return {}, {}

    def _answer(self, header: dict[str, Any], feeds: dict[str, np.ndarray]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        outputs: Any = self._server.answer(feeds)
        if not (isinstance(outputs, dict) and all(isinstance(value, np.ndarray) for value in outputs.values())):
            raise TypeError(f"answer returned {type(outputs).__name__}, expected a dictionary of arrays")
        return {}, outputs

    def _reload(self, header: dict[str, Any], _: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        self._server.reload(Path(header["model"]))
        return {}, {}


def limit_files(size: int | None, die: bool) -> None:
    """Limit files to `size` bytes, like a full disk; with `die` the process is killed when a write reaches the limit."""
    if size is not None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL if die else signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def said(error: BaseException) -> str:
    """One line with the error and its place in the learner's files."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in FILES]
    where = f"{frames[-1].filename}, line {frames[-1].lineno}: " if frames else ""
    return " ".join(f"{where}{type(error).__name__} {error}".split())[:300]


def serve(reader: int, writer: int) -> None:
    """Run a server in this process. Its output is discarded; the pipes have other descriptors than standard output."""
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with open(os.devnull, "r+b") as nowhere:
        for descriptor in (0, 1, 2):
            os.dup2(nowhere.fileno(), descriptor)
    with contextlib.suppress(EOFError, OSError):
        Child(Pipes(reader, writer)).run()


def nursery(asked: socket.socket) -> None:
    """Fork a server's process for every received pair of pipes, and answer with its process id."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps them
    while True:
        message, pipes, _, _ = socket.recv_fds(asked, 1, 2)
        if not message:
            return
        pid = os.fork()
        if pid == 0:
            try:
                asked.close()
                serve(*pipes)
            finally:
                os._exit(0)
        for pipe in pipes:
            os.close(pipe)
        asked.sendall(struct.pack("<i", pid))


def main() -> None:
    """Import what every server needs, then wait on standard input, which is a socket. Servers cannot read each other's memory."""
    sys.path[0] = sys.argv[1]  # in place of this file's folder
    sys.dont_write_bytecode = True  # the disk limit of the server must not affect its imports
    with contextlib.suppress(ImportError):
        __import__(sys.argv[2])
    import course_lib.engines.registry
    import course_lib.labs.lab08_serving.sandboxed.own_namespace  # noqa: F401

    ctypes.CDLL(None).prctl(_SET_DUMPABLE, 0, 0, 0, 0)
    nursery(socket.socket(fileno=0))


if __name__ == "__main__":
    main()
