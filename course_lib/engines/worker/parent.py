"""The parent side of a worker: it starts the process, sends requests, and enforces every deadline.

It holds no learner code. A worker that crashes, hangs or sends an invalid answer costs its own engine and nothing else.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np

import course_lib
from course_lib import errors
from course_lib._util.plain_text import plain
from course_lib._util.processes import end_tree
from course_lib.engines.plan import Feeds, ModelSource, Plan, TensorInfo
from course_lib.engines.progress import Report
from course_lib.engines.worker import allowance, wire
from course_lib.engines.worker.environment import HERE, Environment
from course_lib.errors import NO_ANSWER, WORKER_ENDED, BackendUnavailable, CourseError, WorkerDied

_T = TypeVar("_T")
_Worker = TypeVar("_Worker", bound="Worker")
Launcher = allowance.Launcher
# What a child may call its failure. Anything else, such as a fault of the examiner's, is not its to claim.
_CHILD_ERRORS = (
    errors.BackendUnavailable,
    errors.BuildError,
    errors.PrecisionError,
    errors.PlanError,
    errors.EngineError,
    errors.RecipeError,
)
# The codes that it may give. Those that excuse a failure, such as WORKER_ENDED, are the examiner's.
_CHILD_CODES = frozenset(
    (errors.PRECISION, errors.PROFILE, errors.FIXED_DIMENSION, errors.OUTSIDE_PROFILES, errors.ZERO_POINT, errors.TWO_READINGS)
)
_LIBRARY = str(Path(course_lib.__file__).resolve().parent.parent)

# Started with -c instead of -m so that the folder the worker runs in, which may be a learner's, is not on its path.
_BOOTSTRAP = "import sys; sys.path[0] = sys.argv[1]; from {} import serve; serve()"
_QUIET = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "CUDA_MODULE_LOADING": "LAZY"}


class Worker:
    """A process that loads and runs one engine in one environment. Use it as a context manager; leaving it ends the process.

    Args:
        environment: the interpreter to start.
        launcher: wraps the command; the judge passes its sandbox here.
        timeout_s: longest wait for one answer; `build` and others may override it.
        most_bytes: largest answer. The announcement of a larger one ends the worker.
        codes: codes of errors that the process may send besides those of engines and compilers. Any other one is dropped.

    Attributes:
        program: the module whose function ``serve`` answers in the process.
        clock: how the last `time_ms` was measured, for engines that have several ways; see `Execution.clock`.
        wanted_clock: how to measure the next one; "" for the engine's own way.

    Raises:
        BackendUnavailable: the interpreter or its launcher cannot be started.
        WorkerDied: any method raises it if the process ended, hung or sent an invalid answer.
    """

    program: ClassVar[str] = "course_lib.engines.worker.child"

    def __init__(
        self,
        environment: Environment = HERE,
        *,
        launcher: Launcher | None = None,
        timeout_s: float = 60.0,
        most_bytes: int = wire.MAX_ARRAYS,
        codes: Iterable[str] = (),
    ) -> None:
        self._codes = _CHILD_CODES.union(codes)
        self.timeout_s, self.most_bytes = timeout_s, most_bytes
        self._allowance = allowance.allowance_of(launcher)
        self._allowance.check()
        command = [*environment.command, "-c", _BOOTSTRAP.format(self.program), _LIBRARY]
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
        self.clock = self.wanted_clock = ""

    def __enter__(self: _Worker) -> _Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process and everything it started."""
        end_tree(self._process)
        for pipe in (self._process.stdin, self._process.stdout, self._log):
            if pipe is not None:
                pipe.close()

    def backends(self) -> list[dict[str, str]]:
        """The result of `available_backends` in the worker's environment."""
        header, _ = self._ask({"do": "backends"})
        return self._read(lambda: [dict(row) for row in header["backends"]])

    def build(
        self, backend: str, model: Path | bytes, recipe: dict[str, Any], *, timeout_s: float, report: Report | None = None
    ) -> Plan:
        """Compile in the worker, from a file that it can read or from the file's contents; see `registry.compile_plan`."""
        request = {"do": "build", "backend": backend, "recipe": recipe, "progress": report is not None}
        if isinstance(model, bytes):
            header, arrays = self._ask(request, {"model": np.frombuffer(model, np.uint8)}, timeout_s=timeout_s, report=report)
        else:
            header, arrays = self._ask({**request, "model": str(model)}, timeout_s=timeout_s, report=report)
        return self._read(lambda: Plan.from_json(header["plan"], arrays["data"].tobytes()))

    def load(self, source: Plan | ModelSource) -> None:
        """Load an engine in the worker. `inputs` and `outputs` then describe it."""
        if isinstance(source, Plan):
            header, _ = self._ask({"do": "load", "plan": source.to_json()}, {"data": np.frombuffer(source.data, np.uint8)})
        else:
            header, _ = self._ask({"do": "load", "source": asdict(source)})
        self.inputs, self.outputs = self._read(lambda: (_infos(header["inputs"]), _infos(header["outputs"])))

    def infer(self, feeds: Feeds) -> dict[str, np.ndarray]:
        """See `Engine.infer`."""
        _, arrays = self._ask({"do": "infer"}, feeds)
        return arrays

    def time_ms(self, feeds: Feeds) -> float:
        """See `Engine.time_ms`. The clock is the worker's own, so trust it only for your own engines."""
        header, _ = self._ask({"do": "time", "clock": self.wanted_clock}, feeds)
        self.clock = self._read(lambda: str(header["clock"]))
        return self._read(lambda: float(header["ms"]))

    def _read(self, convert: Callable[[], _T]) -> _T:
        """The content of an answer. An invalid answer ends the worker."""
        try:
            return convert()
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            end_tree(self._process)
            raise WorkerDied(f"the worker sent an invalid answer ({plain(repr(error), 200)})") from None

    def _ask(
        self,
        request: dict[str, Any],
        arrays: Feeds | None = None,
        *,
        timeout_s: float | None = None,
        report: Report | None = None,
    ) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        with self._allowance.waiting(self.timeout_s if timeout_s is None else timeout_s) as limit_s:
            return self._asked(request, arrays, limit_s, report)

    def _asked(
        self, request: dict[str, Any], arrays: Feeds | None, limit_s: float, report: Report | None
    ) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        deadline = time.monotonic() + limit_s
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            wire.send(self._process.stdin.fileno(), request, arrays, deadline)
            header, answer = wire.receive(self._process.stdout.fileno(), deadline, self.most_bytes)
            while "progress" in header:
                self._progress(header["progress"], report)
                header, answer = wire.receive(self._process.stdout.fileno(), deadline, self.most_bytes)
        except TimeoutError:
            end_tree(self._process)
            raise WorkerDied(
                f"no answer to {request['do']!r} within {limit_s:g} s: the worker was stopped", code=NO_ANSWER
            ) from None
        except (EOFError, BrokenPipeError):
            raise WorkerDied(f"the worker ended during {request['do']!r}: {self._last_words()}", code=WORKER_ENDED) from None
        except WorkerDied:
            end_tree(self._process)
            raise
        if "error" in header:
            kind, message, code = (str(header.get(key, "")) for key in ("error", "message", "code"))
            raise _error(kind, message, code, self._codes)
        return header, answer

    def _progress(self, said: Any, report: Report | None) -> None:
        share, phase = self._read(lambda: (min(max(float(said[0]), 0.0), 1.0), plain(said[1], 200)))
        if report:
            report(share, phase)

    def _last_words(self) -> str:
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            end_tree(self._process)
            code = 0
        cause = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - 2000))
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return f"{cause}; its last words: {plain(lines[-1], 300) if lines else 'none'}"


def _infos(rows: Any) -> tuple[TensorInfo, ...]:
    return tuple(TensorInfo(str(row["name"]), tuple(map(int, row["shape"])), str(row["dtype"])) for row in rows)


def _error(kind: str, message: str, code: str = "", codes: Collection[str] = _CHILD_CODES) -> CourseError:
    """The child's error as the parent raises it: our own classes by name, anything else as an `EngineError`."""
    message, code = plain(message), code if code in codes else ""
    known = {error.__name__: error for error in _CHILD_ERRORS}
    return known[kind](message, code=code) if kind in known else errors.EngineError(plain(f"{kind[:60]}: {message}"))
