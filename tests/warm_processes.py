"""Processes that start with PyTorch and its friends imported: each is forked from a server that has imported them once.

    python tests/warm_processes.py serve SOCKET      the server
    python tests/warm_processes.py SOCKET -c CODE    what is started instead of `python -c CODE`, or `-m MODULE`: it asks the
                                                     server for such a process, and each of the two ends when the other does

Kernels of notebooks are started like this, and workers that no sandbox surrounds. Such a process shares nothing with another
but these imports: neither names nor files nor the random numbers that come next. Tests of the workers themselves start real ones.
Programs of lab 11 come from a second server, because Torch-TensorRT replaces parts of torch for the whole process.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys

TYPE_CHECKING = False  # a program that asks for a process should not wait for the import of typing
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

VARIABLE = "COURSE_TEST_WARM_SOCKET"  # the server's socket, where one serves this run
CONVERTS = "torch_tensorrt"  # in the arguments of programs for the second server, and at the end of its socket's name
HEAVY = (
    *("numpy", "onnx", "onnxruntime", "onnxscript", "torch", "torch.export", "torch._dynamo", "torch._inductor"),
    *("torch.onnx._internal.exporter._core", "torch.onnx._internal.exporter._registration", "sklearn.datasets"),
    *("matplotlib.figure", "matplotlib.backends.backend_agg", "ipykernel.kernelapp", "pandas"),
    *("tensorrt_rtx", "openvino", "course_lib.engines.worker.child", "course_lib.models.export"),
)


@contextlib.contextmanager
def start(folder: str) -> Iterator[None]:
    """A server for this process and those that it starts from now on; it is at work when it has imported everything."""
    import subprocess

    path = os.path.join(folder, "socket")
    server = subprocess.Popen([sys.executable, __file__, "serve", path], stdin=subprocess.PIPE)
    os.environ[VARIABLE] = path
    try:
        yield
    finally:
        os.environ.pop(VARIABLE, None)
        server.communicate()


def command() -> list[str]:
    """What to start instead of this interpreter; waits until the server is ready."""
    import time
    from pathlib import Path

    path = Path(os.environ[VARIABLE])
    deadline = time.monotonic() + 120
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"no server at {path}")
        time.sleep(0.02)
    return [sys.executable, "-S", "-E", __file__, str(path)]


def install(wanted: Callable[[], bool] = lambda: True) -> None:
    """From now on, workers and programs of the library that this interpreter starts without a sandbox are forked from the server.

    Programs that may not see the library, such as those of learners' functions, are started as ever.

    Args:
        wanted: whether a process may be forked now. There must be a server as well.
    """
    from course_lib.engines.worker import environment, parent
    from course_lib.labs.framework import runner

    start_worker, run = parent.Worker.__init__, runner._run

    def start_warm(self, where=environment.HERE, *, launcher=None, **options):  # type: ignore[no-untyped-def]
        if where == environment.HERE and launcher is None and VARIABLE in os.environ and wanted():
            where = environment.Environment(where.name, tuple(command()))
        start_worker(self, where, launcher=launcher, **options)

    def run_warm(program: list[str], *arguments):  # type: ignore[no-untyped-def]
        of_library = program[:3] == [sys.executable, "-I", "-c"] and "from course_lib" in program[3]
        if of_library and VARIABLE in os.environ and wanted():
            program = [*command(), *program[2:]]
        return run(program, *arguments)

    parent.Worker.__init__ = start_warm  # type: ignore[assignment,method-assign]
    runner._run = run_warm  # type: ignore[assignment]


def list_operators_once() -> None:
    """torch asks onnxscript for the list of all its operators at each export, and making it takes a third of an export."""
    from functools import cache

    from torch.onnx._internal.exporter._registration import onnxscript_apis

    if not hasattr(onnxscript_apis.get_torchlib_ops, "cache_info"):
        onnxscript_apis.get_torchlib_ops = cache(onnxscript_apis.get_torchlib_ops)
        onnxscript_apis.get_torchlib_ops()


def serve(path: str) -> None:
    """Import everything, then fork a process for each that asks, until standard input closes."""
    import gc
    import importlib
    import select
    import signal
    from pathlib import Path

    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.update(OPENBLAS_NUM_THREADS="1", MPLBACKEND="module://matplotlib_inline.backend_inline")
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    for name in HEAVY:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    from course_lib.engines import registry
    from tests import exports_once

    registry.all_backends()
    list_operators_once()
    exports_once.install()
    install()
    gc.freeze()
    if os.fork() == 0:
        from course_lib.engines.backends.torch_tensorrt import without_gpu
        from course_lib.errors import BackendUnavailable

        path += CONVERTS
        without_gpu.hide_gpus()
        with contextlib.suppress(BackendUnavailable):
            without_gpu.load()
            sys.path.insert(0, sys.path.pop(1))  # the first is replaced in each process

    ended, ending = socket.socketpair()  # a signal makes it readable
    ended.setblocking(False)
    ending.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(ending.fileno())
    asked: dict[socket.socket, int] = {}  # who asked, and the process that was made for it
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path + "~")
        listener.listen(100)
        Path(path + "~").rename(path)  # where it can be seen, it answers
        while True:
            ready = select.select([listener, sys.stdin, ended, *asked], [], [])[0]
            if sys.stdin in ready:
                break
            if ended in ready:
                with contextlib.suppress(BlockingIOError):
                    ended.recv(1000)
                _tell_of_ends(asked)
            for asker in [asker for asker in asked if asker in ready]:
                _kill(asked.pop(asker))  # who asked is gone
                asker.close()
            if listener in ready:
                asker, _ = listener.accept()
                try:
                    _, files, _, _ = socket.recv_fds(asker, 1, 3)
                    request = json.loads(asker.makefile().readline())
                except (OSError, ValueError):
                    asker.close()  # it was killed while it asked
                    continue
                if (pid := os.fork()) == 0:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    for other in (listener, ended, ending, asker, *asked):
                        other.close()
                    _become(request, files)
                for file in files:
                    os.close(file)
                asked[asker] = pid
    for pid in asked.values():
        _kill(pid)


def _tell_of_ends(asked: dict[socket.socket, int]) -> None:
    askers = {pid: asker for asker, pid in asked.items()}
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            asker = askers.get(found[0])
            if asker is not None:
                del asked[asker]
                with contextlib.suppress(OSError):
                    asker.sendall(str(os.waitstatus_to_exitcode(found[1])).encode())
                asker.close()


def _kill(pid: int) -> None:
    """A process and its group; it has none of its own if it was made this moment."""
    import signal

    for kill in (os.kill, os.killpg):
        with contextlib.suppress(ProcessLookupError):
            kill(pid, signal.SIGKILL)


def _become(request: dict, files: list[int]) -> None:
    """The rest of this process does what `python -c CODE` or `python -m MODULE` would, for as long as who asked for it lives."""
    import random
    import runpy
    import traceback

    import numpy as np

    code = 0
    try:
        os.setsid()
        for standard, file in enumerate(files):
            os.dup2(file, standard)
            os.close(file)
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update(request["environment"])
        random.seed()
        np.random.seed()
        kind, what, *arguments = request["arguments"]
        sys.argv, sys.path[0] = [kind, *arguments], ""
        if kind == "-c":
            exec(compile(what, "<string>", "exec"), {"__name__": "__main__"})
        else:
            runpy.run_module(what, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def ask(path: str, *arguments: str) -> None:
    """Have a process made for these arguments, this folder, environment and standard files, and end as it ends."""
    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.connect(path + CONVERTS if CONVERTS in " ".join(arguments) else path)
        except FileNotFoundError:  # the second server is not ready yet
            server.connect(path)
        socket.send_fds(server, [b" "], [0, 1, 2])
        request = {"arguments": arguments, "folder": os.getcwd(), "environment": dict(os.environ)}
        server.sendall(json.dumps(request).encode() + b"\n")
        for standard in range(3):
            os.close(standard)  # what reads from a pipe must see its end when the other process closes it
        status = int(server.recv(10) or b"1")
    if status < 0:
        os.kill(os.getpid(), -status)
    os._exit(status)


def main() -> None:
    """A server, or a program that asks one."""
    if sys.argv[1] != "serve":
        ask(*sys.argv[1:])
    try:
        with contextlib.suppress(FileNotFoundError):  # the run was over before the second server was ready
            serve(sys.argv[2])
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
    finally:  # at once: the second server would wait for threads of libraries, which a fork leaves behind
        os._exit(0)


if __name__ == "__main__":
    main()
