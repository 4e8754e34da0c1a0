"""`course bench`: the engines of several files, each in its own worker, measured in one session."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from course_lib.benchmark import compare
from course_lib.benchmark.comparison import Feeds
from course_lib.cli.building import build
from course_lib.engines import Plan, TensorInfo, Worker, default_runner, split_target
from course_lib.errors import CourseError
from course_lib.grading.isolation import sandbox
from course_lib.grading.isolation.confinement import confined

if TYPE_CHECKING:
    from course_lib.recipe import Recipe

# For plans: walls, and hardly a limit. They may be the user's own, of any size.
_SANDBOX = sandbox.Sandbox(cpu_seconds=1 << 20, address_bytes=1 << 46, memory_bytes=1 << 46, disk_bytes=1 << 40)


def bench(models: Sequence[Path], recipe: Recipe, *, backend: str | None, batch: int, seconds: float) -> dict[str, object]:
    """Measure ONNX files and plans. Each ratio is relative to the first file.

    A plan is executable code, and its file does not prove who built it. With a plan among the files, all engines run in the sandbox, if one
    works on this machine.

    Raises:
        CourseError: a file cannot be built or run, or the inputs of two models differ.
    """
    target = backend or default_runner()
    _, environment = split_target(target)
    names = _distinct([str(model) for model in models])
    with ExitStack() as stack:
        plans = any(model.suffix == ".plan" for model in models)
        launcher = stack.enter_context(confined(_SANDBOX)) if plans and not sandbox.problem() else None
        workers: dict[str, Worker] = {}
        for index, model in enumerate(models):
            plan = Plan.load(model) if model.suffix == ".plan" else build(model, recipe, backend=target)
            worker = stack.enter_context(Worker(environment, launcher=launcher))
            worker.load(plan)
            workers[names[index]] = worker
        inputs = next(iter(workers.values())).inputs
        if any(worker.inputs != inputs for worker in workers.values()):
            raise CourseError("the models have different inputs, so they cannot be measured on the same data")
        rng = np.random.default_rng()
        first = next(iter(workers))
        measured = compare(
            workers if len(workers) > 1 else {first: workers[first], "the same again": workers[first]},
            lambda: _random(inputs, batch, rng),
            baseline=first,
            time_limit_s=seconds,
        )
    return {"backend": target, "batch": batch, **measured.to_json()}


def _distinct(names: Sequence[str]) -> list[str]:
    """Each name once: the second and later occurrences are numbered."""
    seen = [names[:index].count(name) for index, name in enumerate(names)]
    return [f"{name} ({before + 1})" if before else name for name, before in zip(names, seen, strict=True)]


def _random(inputs: tuple[TensorInfo, ...], batch: int, rng: np.random.Generator) -> Feeds:
    def draw(info: TensorInfo) -> np.ndarray:
        shape = tuple(batch if n < 0 else n for n in info.shape)
        if np.issubdtype(np.dtype(info.dtype), np.floating):
            return rng.standard_normal(shape).astype(info.dtype)
        return np.zeros(shape, info.dtype)  # an index into a table is only safe when it is small

    return {info.name: draw(info) for info in inputs}
