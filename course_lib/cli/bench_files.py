"""`course bench`: the engines of several files, each in its own worker, measured in one session."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from course_lib.benchmark import compare
from course_lib.benchmark.comparison import Feeds
from course_lib.cli.building import build
from course_lib.cli.shape_option import check_names
from course_lib.engines import Plan, TensorInfo, Worker, default_runner, split_target
from course_lib.engines.plan import spell
from course_lib.errors import OUTSIDE_PROFILES, CourseError, EngineError
from course_lib.grading.isolation import sandbox
from course_lib.grading.isolation.confinement import confined

if TYPE_CHECKING:
    from course_lib.recipe import Recipe

# For plans: walls, and hardly a limit. They may be the user's own, of any size.
_SANDBOX = sandbox.Sandbox(cpu_seconds=1 << 20, address_bytes=1 << 46, memory_bytes=1 << 46, disk_bytes=1 << 40)


Shape = tuple[int, ...]


def bench(
    models: Sequence[Path],
    recipe: Recipe,
    *,
    backend: str | None,
    seconds: float,
    given: Mapping[str, Shape] | None = None,
) -> dict[str, object]:
    """Measure ONNX files and plans. Each ratio is relative to the first file.

    A plan is executable code, and its file does not prove who built it. With a plan among the files, all engines run in the sandbox, if one
    works on this machine.

    Args:
        given: see `input_shapes`.

    Raises:
        CourseError: a file cannot be built or run, the inputs of two models differ, or the size of a dimension is not known.
    """
    target = backend or default_runner()
    _, environment = split_target(target)
    names = _distinct([str(model) for model in models])
    with ExitStack() as stack:
        plans = any(model.suffix == ".plan" for model in models)
        launcher = stack.enter_context(confined(_SANDBOX)) if plans and not sandbox.problem() else None
        workers: dict[str, Worker] = {}
        kernels: dict[str, int] = {}
        profiles: list[Mapping[str, Mapping[str, Sequence[int]]]] = []  # of the first engine
        for index, model in enumerate(models):
            plan = Plan.load(model) if model.suffix == ".plan" else build(model, recipe, backend=target)
            worker = stack.enter_context(Worker(environment, launcher=launcher))
            with _named(str(model)):
                worker.load(plan)
            workers[names[index]] = worker
            kernels[names[index]] = len(plan.layers.kernels)
            if index == 0:
                profiles = plan.recipe.get("profiles", [])
        inputs = next(iter(workers.values())).inputs
        if any(worker.inputs != inputs for worker in workers.values()):
            raise CourseError("the models have different inputs, so they cannot be measured on the same data")
        first = next(iter(workers))
        with _named(first):
            shapes = input_shapes(inputs, profiles[0] if profiles else {}, given or {})
        rng = np.random.default_rng()
        subjects = {name: _Subject(name, worker) for name, worker in workers.items()}
        measured = compare(
            subjects if len(subjects) > 1 else {**subjects, "the same again": subjects[first]},
            lambda: _random(inputs, shapes, rng),
            baseline=first,
            time_limit_s=seconds,
        )
    known = {"backend": target, "shapes": {name: list(shape) for name, shape in shapes.items()}, "kernels": kernels}
    return {**known, **measured.to_json()}


def input_shapes(
    inputs: Sequence[TensorInfo],
    profile: Mapping[str, Mapping[str, Sequence[int]]],
    given: Mapping[str, Shape],
) -> dict[str, Shape]:
    """The shape of each input: the given one, else the profile's `opt`, else the engine's own with batch 1.

    Raises:
        CourseError: a dimension has no size, numpy does not have a type, or a given name is not one of the engine's.
    """
    check_names(given, [info.name for info in inputs])
    shapes: dict[str, Shape] = {}
    for info in inputs:
        if not hasattr(np, info.dtype):  # not np.dtype, which onnx's packages extend with their own types
            raise CourseError(
                f"input {info.name!r} is {info.dtype}, which numpy does not have: cast it from float32 in the graph"
            )
        shape = list(given.get(info.name) or profile.get(info.name, {}).get("opt") or info.shape)
        if len(shape) > 1 and shape[0] < 0:  # with one dimension it may be a length
            shape[0] = 1
        shapes[info.name] = tuple(shape)
    if unsized := [info for info in inputs if min(shapes[info.name], default=0) < 0]:
        named = ", ".join(f"{info.name!r} ({spell(shapes[info.name])})" for info in unsized)
        examples = " ".join(f"--shape {info.name}={spell(shapes[info.name]).replace('N', '320')}" for info in unsized)
        raise CourseError(
            f"the inputs {named} have dimensions N without a size. Give their shapes, such as {examples}, or --recipe"
        )
    return shapes


@contextmanager
def _named(model: str) -> Iterator[None]:
    """Let an error in this block name the model."""
    try:
        yield
    except CourseError as error:
        raise type(error)(f"{model}: {error}", code=error.code) from None


class _Subject:
    """The engine of one file. Its errors name the file."""

    def __init__(self, name: str, worker: Worker) -> None:
        self.name, self.worker = name, worker

    def time_ms(self, feeds: Feeds) -> float:
        with _named(self.name):
            try:
                return self.worker.time_ms(feeds)
            except EngineError as error:
                zeros = [name for name, array in feeds.items() if array.dtype.kind in "iu"]
                if zeros and error.code != OUTSIDE_PROFILES:
                    raise EngineError(
                        f"{str(error).rstrip('.')}. `course bench` fills integer inputs with zeros: if {zeros[0]!r} holds sizes, make it a "
                        "constant of the graph"
                    ) from None
                raise


def _distinct(names: Sequence[str]) -> list[str]:
    """Each name once: the second and later occurrences are numbered."""
    seen = [names[:index].count(name) for index, name in enumerate(names)]
    return [f"{name} ({before + 1})" if before else name for name, before in zip(names, seen, strict=True)]


def _random(inputs: tuple[TensorInfo, ...], shapes: Mapping[str, Shape], rng: np.random.Generator) -> Feeds:
    def draw(info: TensorInfo) -> np.ndarray:
        shape = shapes[info.name]
        if np.issubdtype(np.dtype(info.dtype), np.floating):
            return rng.standard_normal(shape).astype(info.dtype)
        return np.zeros(shape, info.dtype)  # an index into a table is only safe when it is small

    return {info.name: draw(info) for info in inputs}
