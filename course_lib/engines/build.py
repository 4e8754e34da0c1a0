"""From a model and a recipe to a plan, in a process of its own with a time limit."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from course_lib.engines.backends import backend as find
from course_lib.engines.base import Plan
from course_lib.engines.environments import split_target
from course_lib.engines.progress import Report, bar
from course_lib.engines.worker import Launcher, Worker
from course_lib.errors import BuildError, WorkerDied

if TYPE_CHECKING:
    import onnx

    from course_lib.recipe import Recipe  # a worker imports this package in environments without pydantic


def default_builder() -> str:
    """``"tensorrt"`` where it can build, otherwise TensorRT for RTX, which needs no GPU to build."""
    return "tensorrt_rtx" if find("tensorrt").no_build else "tensorrt"


def default_runner() -> str:
    """The first of TensorRT, TensorRT for RTX and ONNX Runtime that can run engines here."""
    return next(name for name in ("tensorrt", "tensorrt_rtx", "onnxruntime") if not find(name).no_run)


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
        backend: a backend's name, ``name@environment`` for one in another interpreter; default `default_builder`.
        time_limit_s: the compiler is stopped after this many seconds.
        launcher: wraps the command of the compiler's process in a sandbox, which then gets the model's bytes and no path:
            weights in files beside the model are out of its reach.
        progress: show a bar, or call a function with the share done and the name of the phase. TensorRT tells since version 10.

    Raises:
        BackendUnavailable: unknown, not installed, or it cannot build on this machine.
        BuildError: the model or the recipe is refused, or the compiler crashed or took too long.
        PrecisionError: the layers do not have the recipe's precision.
    """
    name, environment = split_target(backend or default_builder())
    find(name)  # an unknown name is an error here, before a process starts
    if recipe is None:
        from course_lib.recipe import Recipe

        recipe = Recipe()
    shown = bar("building") if progress is True else contextlib.nullcontext(progress or None)
    with tempfile.TemporaryDirectory() as folder, Worker(environment, launcher=launcher) as worker, shown as report:
        path = _file(model, Path(folder))
        try:
            source = path.read_bytes() if launcher else path
            return worker.build(name, source, recipe.wire(), timeout_s=time_limit_s, report=report)
        except WorkerDied as error:
            raise BuildError(f"the compiler did not finish: {error}") from None


def _file(model: Any, folder: Path) -> Path:
    if isinstance(model, (str, os.PathLike)):
        path = Path(model).resolve()
        if not path.is_file():
            raise BuildError(f"{model}: no such file")
        return path
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path
