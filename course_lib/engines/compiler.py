"""From a model and a recipe to a plan, in a separate process with a time limit."""

from __future__ import annotations

import contextlib
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from course_lib._util.progress_bar import bar
from course_lib.engines.plan import Plan
from course_lib.engines.progress import Report
from course_lib.engines.registry import availability, default_builder, operators_of
from course_lib.engines.worker.environment import HERE, split_target
from course_lib.engines.worker.parent import Launcher, Worker
from course_lib.errors import BackendUnavailable, BuildError, EngineError, WorkerDied

if TYPE_CHECKING:
    import onnx

    from course_lib.recipe import Recipe  # a worker imports this package in environments without pydantic


class Compiler:
    """One process that compiles several models in sequence, because starting TensorRT takes longer than a small build.

    Use it as a context manager. The first build starts the process, and leaving the context ends it. If the process died or took
    too long, the next build starts another one.

    Args:
        backend: name of a backend, or ``name@environment`` for another interpreter; default `default_builder`.
        launcher: wraps the command of the compiler's process in a sandbox. The process then gets the model's bytes and no path:
            it cannot read weights in files next to the model.

    Raises:
        BackendUnavailable: no such backend or environment.
    """

    def __init__(self, backend: str | None = None, *, launcher: Launcher | None = None) -> None:
        self.backend, self.launcher = backend or default_builder(), launcher
        self._name, self._environment = split_target(self.backend)
        here = availability(self._name)  # an unknown name is an error here, before a process starts
        self._worker: Worker | None = None
        self._version = "" if self._environment != HERE else here.version

    def __enter__(self) -> Compiler:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def build(
        self,
        model: onnx.ModelProto | str | os.PathLike[str],
        recipe: Recipe | None = None,
        *,
        time_limit_s: float = 600.0,
        progress: bool | Report = False,
    ) -> Plan:
        """As the function `build`."""
        from course_lib.recipe import Recipe

        if not isinstance(recipe, Recipe | None):
            raise TypeError(f"recipe is {recipe!r:.80}, expected a Recipe: read a file with Recipe.load(path)")
        recipe = recipe or Recipe()
        shown = bar("building") if progress is True else contextlib.nullcontext(progress or None)
        with tempfile.TemporaryDirectory() as folder, shown as report:
            path = _file(model, Path(folder))
            try:
                source = path.read_bytes() if self.launcher else path
                plan = self._started().build(self._name, source, recipe.wire(), timeout_s=time_limit_s, report=report)
            except WorkerDied as error:
                self._end()
                raise BuildError(f"the compiler did not finish: {error}", code=error.code) from None
            except EngineError as error:  # of a class that is not ours, such as TensorRT's RuntimeError
                raise BuildError(f"the compiler failed: {error}", code=error.code) from None
            return plan if self.launcher else with_operators(plan, path)

    def version(self) -> str:
        """The backend's version. For another interpreter, the compiling process is asked once, before it receives a model.

        Raises:
            BackendUnavailable: the other interpreter does not have the backend.
            BuildError: it does not answer.
        """
        if not self._version:
            try:
                versions = {row["name"]: row["version"] for row in self._started().backends()}
            except WorkerDied as error:
                self._end()
                raise BuildError(
                    f"the environment {self._environment.name!r} does not answer: {error}", code=error.code
                ) from None
            if self._name not in versions:
                raise BackendUnavailable(f"the environment {self._environment.name!r} has no backend {self._name!r}")
            self._version = versions[self._name]
        return self._version

    def _started(self) -> Worker:
        if self._worker is None:
            self._worker = Worker(self._environment, launcher=self.launcher)
        return self._worker

    def _end(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()


def build(
    model: onnx.ModelProto | str | os.PathLike[str],
    recipe: Recipe | None = None,
    *,
    backend: str | None = None,
    time_limit_s: float = 600.0,
    launcher: Launcher | None = None,
    progress: bool | Report = False,
) -> Plan:
    """Compile a model.

    Args:
        model: an ONNX file, or a model in memory.
        recipe: defaults to ``Recipe()``.
        backend, launcher: see `Compiler`.
        time_limit_s: the compiler is stopped after this many seconds.
        progress: show a bar, or call a function with the share done and the name of the phase. TensorRT reports both since version 10.

    Raises:
        BackendUnavailable: the backend is unknown, not installed, or cannot build on this machine.
        BuildError: the model or the recipe is rejected, or the compiler crashed or took too long.
        PrecisionError: the layers do not have the recipe's precision.
    """
    with Compiler(backend, launcher=launcher) as compiler:
        return compiler.build(model, recipe, time_limit_s=time_limit_s, progress=progress)


def with_operators(plan: Plan, model: Path) -> Plan:
    """The operators by name, for a compiler whose interpreter has no onnx package: TensorRT 8.6 has its own interpreter.

    The model must be the course's own or the learner's own on their machine: this process reads it.
    """
    return plan if plan.layers.operators else replace(plan, layers=replace(plan.layers, operators=operators_of(model)))


def _file(model: Any, folder: Path) -> Path:
    if isinstance(model, (str, os.PathLike)):
        path = Path(model).resolve()
        if not path.is_file():
            raise BuildError(f"{model}: no such file")
        return path
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path
