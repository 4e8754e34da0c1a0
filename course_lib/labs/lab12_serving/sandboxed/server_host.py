"""The process that runs a learner's server: source text in, requests in, answers out, over two pipes.

It is started as a file, in the environment of the engines. `nursery` forks a new process for each
server, so that a start does not need imports. An execution context belongs to one thread at a time, as in TensorRT.
"""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import hashlib
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
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

FILES = ("store.py", "server.py")
READY = b"+"  # from the process that has imported everything
# Of a server: fewer than the processes that start servers have, or it could keep them from sending descriptors (unix(7)).
DESCRIPTORS = 512
THREADS = 32  # requests that the server may work on at once
_PERMITTED = {*sys.stdlib_module_names, "numpy", "store", "server"}
_SET_DUMPABLE = 4  # of prctl(2)


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

    Args:
        sources: text by file name, of each of `FILES`.

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


@contextlib.contextmanager
def one_thread(lock: threading.Lock, error: type[Exception]) -> Iterator[None]:
    """Hold the lock of an execution context, or raise the error if another thread does."""
    if not lock.acquire(blocking=False):
        raise error("two threads in one execution context: TensorRT does not allow it")
    try:
        yield
    finally:
        lock.release()


def arrays_of(answer: Any) -> dict[str, np.ndarray]:
    """What a server's ``answer`` returned, if it is a dictionary of arrays.

    Raises:
        TypeError: it is something else, such as None.
    """
    from course_lib.labs.lab12_serving.network import OUTPUT, SCORES

    values = list(answer.values()) if isinstance(answer, dict) else [answer]
    if isinstance(answer, dict) and all(isinstance(value, np.ndarray) for value in values):
        return answer
    kinds = ", ".join("None" if value is None else type(value).__name__ for value in values)
    found = f"a dictionary with {kinds}" if isinstance(answer, dict) else kinds
    raise TypeError(
        f"answer returned {found}, expected {{{OUTPUT!r}: NumPy array of shape (rows, {SCORES})}}: check its `return`"
    )


class BuildError(Exception):
    """The compiler failed."""


class PlanError(Exception):
    """The data is not a plan, or belongs to another version or device."""


class EngineError(Exception):
    """An inference failed."""


class Engines:
    """The object that a server gets: `build` and `load`, and the version and device that plans depend on.

    The engines themselves are in another process, see `engine_host`.

    Attributes:
        version: version of the compiler and the runtime.
        device: compute capability of the GPU, such as ``"sm90"``.
    """

    BuildError, PlanError, EngineError = BuildError, PlanError, EngineError

    def __init__(self, pipes: Pipes, host: socket.socket, version: str, device: str) -> None:
        self.version, self.device = version, device
        self._pipes, self._host, self._one = pipes, host, threading.Lock()

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
        from course_lib.engines.worker import wire

        try:
            with self._one:
                wire.send(self._host.fileno(), {}, {"plan": np.frombuffer(plan, np.uint8)})
                header, _ = wire.receive(self._host.fileno())
                if "error" in header:
                    raise PlanError(header["error"])
                _, (context,), _, _ = socket.recv_fds(self._host, 1, 1)
            return Context(context)
        except PlanError:
            raise
        except Exception as error:
            raise PlanError(f"the plan cannot be loaded: {_ended(error)}"[:200]) from None


class Context:
    """An engine's execution context. One thread at a time may use it.

    Args:
        engine: descriptor of a socket to the engine.
    """

    def __init__(self, engine: int) -> None:
        self._engine, self._one = socket.socket(fileno=engine), threading.Lock()

    def infer(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs by name for inputs by name.

        Raises:
            EngineError: the inference failed, or another thread uses this context.
        """
        from course_lib.engines.worker import wire

        with one_thread(self._one, EngineError):
            try:
                wire.send(self._engine.fileno(), {}, feeds)
                header, outputs = wire.receive(self._engine.fileno())
            except Exception as error:
                raise EngineError(_ended(error)[:200]) from None
        if "error" in header:
            raise EngineError(header["error"])
        return outputs


def _ended(error: Exception) -> str:
    return "the process of the engines ended" if isinstance(error, (EOFError, ConnectionError)) else str(error)


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
        from course_lib.labs.lab12_serving.sandboxed.engine_host import stamped

        return stamped(header["plan"], arrays["data"].tobytes())

    def built(self, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """Hand the supervisor's answer to the thread that waits in `build`."""
        self._builds.pop(header["id"]).put((header, arrays))


class Child:
    """Starts the server and passes messages to it, each request in its own thread.

    Args:
        pipes: to the supervisor.
        begin: the supervisor's first message.
        host: socket to the process with the engines.
    """

    def __init__(self, pipes: Pipes, begin: dict[str, Any], host: socket.socket) -> None:
        self._pipes, self._begin, self._host = pipes, begin, host
        self._server: Any = None
        self._jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def run(self) -> None:
        """Serve until the pipe closes."""
        begin = self._begin
        if begin["apart"]:
            from course_lib.labs.lab12_serving.sandboxed import own_namespace

            own_namespace.set_apart(*([Path(path) for path in begin[key]] for key in ("readable", "writable")))
            resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
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
        factory = server_class(begin["sources"])
        engines = Engines(self._pipes, self._host, begin["version"], begin["device"])
        self._server = factory(Path(begin["model"]), begin["recipe"], Path(begin["cache"]), engines)
        return {}, {}

    def _answer(self, header: dict[str, Any], feeds: dict[str, np.ndarray]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        return {}, arrays_of(self._server.answer(feeds))

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
    """Run a server in a child of this process, and its engines in this one.

    Their output is discarded; the pipes have other descriptors than standard output.
    """
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with open(os.devnull, "r+b") as nowhere:
        for descriptor in (0, 1, 2):
            os.dup2(nowhere.fileno(), descriptor)
    with contextlib.suppress(EOFError, OSError):
        pipes = Pipes(reader, writer)
        begin, _ = pipes.receive()
        ours, theirs = socket.socketpair()
        if os.fork() == 0:
            ours.close()
            Child(pipes, begin, theirs).run()
            return
        for descriptor in (reader, writer, theirs.detach()):
            os.close(descriptor)
        delay = os.open(begin["delay"], os.O_RDONLY) if begin["delay"] else None  # the server's process does not have it
        if begin["apart"]:
            from course_lib.labs.lab12_serving.sandboxed import own_namespace

            own_namespace.set_apart([], [], own_processes=not begin["on_gpu"])
        from course_lib.labs.lab12_serving.sandboxed.engine_host import EngineHost

        EngineHost(ours, begin["version"], begin["device"], begin["failing"], delay).serve()


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
    import course_lib.labs.lab12_serving.network
    import course_lib.labs.lab12_serving.sandboxed.engine_host
    import course_lib.labs.lab12_serving.sandboxed.own_namespace  # noqa: F401

    ctypes.CDLL(None).prctl(_SET_DUMPABLE, 0, 0, 0, 0)
    asked = socket.socket(fileno=0)
    asked.sendall(READY)
    nursery(asked)


if __name__ == "__main__":
    main()
