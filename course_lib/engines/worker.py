"""A worker: a small process that loads one engine in one environment and answers. This module is both of its ends.

The child (`serve`) needs Python 3.10, numpy and its backend, nothing else. The parent (`Worker`) holds no learner code and
owns every deadline: a worker that crashes, hangs or talks nonsense costs its own engine and nothing else.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

import course_lib
from course_lib import errors
from course_lib.engines import wire
from course_lib.engines.base import Feeds, ModelSource, Plan, TensorInfo
from course_lib.engines.environments import HERE, Environment
from course_lib.engines.layers import LayerTable
from course_lib.engines.progress import Report, at_most_every
from course_lib.errors import WORKER_ENDED, BackendUnavailable, CourseError, WorkerDied

_T = TypeVar("_T")
Launcher = Callable[[Sequence[str]], list[str]]  # wraps the worker's command, for example in a sandbox
# What a child may call its failure. Anything else, such as a fault of the examiner's, is not its to claim.
_CHILD_ERRORS = (
    errors.BackendUnavailable,
    errors.BuildError,
    errors.PrecisionError,
    errors.PlanError,
    errors.EngineError,
    errors.RecipeError,
)
_LIBRARY = str(Path(course_lib.__file__).resolve().parent.parent)

# Started with -c instead of -m so that the folder the worker runs in, which may be a learner's, is not on its path.
_BOOTSTRAP = "import sys; sys.path[0] = sys.argv[1]; from course_lib.engines.worker import serve; serve()"
_QUIET = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "CUDA_MODULE_LOADING": "LAZY"}


class Worker:
    """The parent's end. Use it as a context manager; leaving it ends the process.

    Args:
        environment: the interpreter to start.
        launcher: wraps the command; the judge passes its sandbox here.
        timeout_s: longest wait for any one answer; `build` and others may override it.
        most_bytes: largest answer; what is announced as larger ends the worker.

    Raises:
        BackendUnavailable: the interpreter or its launcher cannot be started.
        WorkerDied: from any method, when the process ended, hung or answered nonsense.
    """

    def __init__(
        self,
        environment: Environment = HERE,
        *,
        launcher: Launcher | None = None,
        timeout_s: float = 60.0,
        most_bytes: int = wire.MAX_ARRAYS,
    ) -> None:
        self.timeout_s, self.most_bytes = timeout_s, most_bytes
        command = [*environment.command, "-c", _BOOTSTRAP, _LIBRARY]
        command = launcher(command) if launcher else command
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed in close)
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env={**os.environ, **_QUIET},
                start_new_session=True,
            )
        except OSError as error:
            self._log.close()
            raise BackendUnavailable(f"cannot start {command[0]!r}: {error.strerror}") from None
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)  # a worker that does not read must not stop us either
        self.inputs: tuple[TensorInfo, ...] = ()
        self.outputs: tuple[TensorInfo, ...] = ()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process and everything it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._log):
            if pipe is not None:
                pipe.close()

    def backends(self) -> list[dict[str, str]]:
        """What `available_backends` says in the worker's environment."""
        header, _ = self._ask({"do": "backends"})
        return self._read(lambda: [dict(row) for row in header["backends"]])

    def build(
        self, backend: str, model: Path | bytes, recipe: dict[str, Any], *, timeout_s: float, report: Report | None = None
    ) -> Plan:
        """Compile in the worker, from a file that it can read or from the file's contents; see `backends.compile_plan`."""
        request = {"do": "build", "backend": backend, "recipe": recipe, "progress": report is not None}
        if isinstance(model, bytes):
            header, arrays = self._ask(request, {"model": np.frombuffer(model, np.uint8)}, timeout_s=timeout_s, report=report)
        else:
            header, arrays = self._ask({**request, "model": str(model)}, timeout_s=timeout_s, report=report)
        return self._read(lambda: received_plan(header["plan"], arrays["data"]))

    def load(self, source: Plan | ModelSource) -> None:
        """Load an engine in the worker; afterwards `inputs` and `outputs` describe it."""
        if isinstance(source, Plan):
            header, _ = self._ask({"do": "load", "plan": _described(source)}, {"data": np.frombuffer(source.data, np.uint8)})
        else:
            header, _ = self._ask({"do": "load", "source": asdict(source)})
        self.inputs, self.outputs = self._read(lambda: (_infos(header["inputs"]), _infos(header["outputs"])))

    def infer(self, feeds: Feeds) -> dict[str, np.ndarray]:
        """See `Engine.infer`."""
        _, arrays = self._ask({"do": "infer"}, feeds)
        return arrays

    def time_ms(self, feeds: Feeds) -> float:
        """See `Engine.time_ms`; the clock is the worker's own, so trust it for your own engines only."""
        header, _ = self._ask({"do": "time"}, feeds)
        return self._read(lambda: float(header["ms"]))

    def _read(self, convert: Callable[[], _T]) -> _T:
        """What an answer means; an answer that means nothing ends the worker."""
        try:
            return convert()
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            self._kill()
            raise WorkerDied(f"the worker answered nonsense ({error!r:.200})") from None

    def _ask(
        self,
        request: dict[str, Any],
        arrays: Feeds | None = None,
        *,
        timeout_s: float | None = None,
        report: Report | None = None,
    ) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        limit = self.timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + limit
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            wire.send(self._process.stdin.fileno(), request, arrays, deadline)
            header, answer = wire.receive(self._process.stdout.fileno(), deadline, self.most_bytes)
            while "progress" in header:
                self._progress(header["progress"], report)
                header, answer = wire.receive(self._process.stdout.fileno(), deadline, self.most_bytes)
        except TimeoutError:
            self._kill()
            raise WorkerDied(f"no answer to {request['do']!r} within {limit:g} s: the worker was stopped") from None
        except (EOFError, BrokenPipeError):
            raise WorkerDied(f"{WORKER_ENDED} during {request['do']!r}: {self._last_words()}") from None
        except WorkerDied:
            self._kill()
            raise
        if "error" in header:
            raise _error(str(header["error"]), str(header.get("message", "")))
        return header, answer

    def _progress(self, said: Any, report: Report | None) -> None:
        share, phase = self._read(lambda: (min(max(float(said[0]), 0.0), 1.0), str(said[1])[:200]))
        if report:
            report(share, phase)

    def _kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def _last_words(self) -> str:
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._kill()
            code = 0
        cause = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - 2000))
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return f"{cause}; its last words: {lines[-1][:300] if lines else 'none'}"


def serve() -> None:
    """The child's end: answer requests on standard input until it closes."""
    reader, writer = os.dup(0), os.dup(1)
    threading.Thread(target=_end_with_parent, args=(reader,), daemon=True).start()
    os.dup2(2, 1)  # compilers print on standard output, which carries messages here
    engine: Any = None
    while True:
        try:
            request, arrays = wire.receive(reader)
        except EOFError:
            return
        try:
            header: dict[str, Any] = {}
            answer: dict[str, np.ndarray] = {}
            if request["do"] == "load":
                engine = _load(request, arrays)
                header = {side: [asdict(info) for info in getattr(engine, side)] for side in ("inputs", "outputs")}
            elif request["do"] == "infer":
                answer = engine.infer(arrays)
            elif request["do"] == "time":
                header = {"ms": engine.time_ms(arrays)}
            else:
                header, answer = _build_or_describe(request, arrays, lambda *said: wire.send(writer, {"progress": said}))
            wire.send(writer, header, answer)
        except Exception as error:  # every failure is an answer; only a crash ends a worker
            wire.send(writer, {"error": type(error).__name__, "message": str(error)})


def _end_with_parent(reader: int) -> None:
    """A compiler would go on for minutes for a parent that was killed: its end of the pipe tells when it is gone."""
    watch = select.poll()
    watch.register(reader, 0)  # no events asked for: only the pipe's end is reported
    watch.poll()
    os._exit(1)


def _build_or_describe(
    request: dict[str, Any], arrays: dict[str, np.ndarray], report: Report
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    from course_lib.engines import backends

    if request["do"] == "backends":
        return {"backends": [found.to_json() for found in backends.available_backends()]}, {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(request.get("model") or Path(folder, "model.onnx"))
        if "model" in arrays:
            path.write_bytes(arrays["model"].tobytes())
        thinned = at_most_every(0.1, report) if request.get("progress") else None
        plan = backends.compile_plan(request["backend"], path, request["recipe"], thinned)
    return {"plan": _described(plan)}, {"data": np.frombuffer(plan.data, np.uint8)}


def _load(request: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
    from course_lib.engines import backends

    if "plan" in request:
        return backends.load(received_plan(request["plan"], arrays["data"]))
    source = request["source"]
    return backends.load(ModelSource(**{**source, "arguments": tuple(source["arguments"])}))


def _described(plan: Plan) -> dict[str, Any]:
    return {**plan.summary(), "layers": plan.layers.to_json()}


def _infos(rows: Any) -> tuple[TensorInfo, ...]:
    return tuple(TensorInfo(str(row["name"]), tuple(map(int, row["shape"])), str(row["dtype"])) for row in rows)


def received_plan(described: dict[str, Any], data: np.ndarray) -> Plan:
    """A plan as it came over the wire: its description without data, and the data."""
    values = {**described, "layers": LayerTable.from_json(described["layers"])}
    for key in ("targets", "notes"):
        values[key] = tuple(values[key])
    return Plan(data=data.tobytes(), **values)


def _error(kind: str, message: str) -> CourseError:
    """The child's error as the parent raises it: our own classes by name, anything else as an `EngineError`."""
    message = " ".join(message.split())[:1000]
    known = {error.__name__: error for error in _CHILD_ERRORS}
    return known[kind](message) if kind in known else errors.EngineError(f"{kind}: {message}")


if __name__ == "__main__":
    sys.exit("a worker is started by course_lib.engines.worker.Worker")
