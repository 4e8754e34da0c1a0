"""Building, inspecting and measuring engines, and recorded profiles: `course build`, `layers`, `bench`, `profile`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from course_lib.cli.commands.options import AsJson, show
from course_lib.errors import PROFILE, BuildError, CourseError

if TYPE_CHECKING:
    from course_lib.engines import Plan
    from course_lib.recipe import Recipe

_LAYER_FILES = (".json", ".log", ".txt")  # of trtexec, and logs of builds
Model = Annotated[Path, typer.Argument(help="an ONNX file", show_default=False)]
RecipeFile = Annotated[
    Path | None, typer.Option("--recipe", "-r", help="a recipe.toml; default: the one beside the model, else FP32")
]
BackendName = Annotated[
    str | None, typer.Option("--backend", "-b", help="a backend of `course doctor`, or backend@environment")
]
TimeLimit = Annotated[float, typer.Option(help="stop the compiler after this many seconds")]


def build(
    model: Model,
    recipe: RecipeFile = None,
    backend: BackendName = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="path of the plan; default: MODEL.plan")] = None,
    time_limit: TimeLimit = 600,
    as_json: AsJson = False,
) -> None:
    """Build a plan from an ONNX file and a recipe."""
    from course_lib.cli import console

    recipe = recipe or _beside(model)
    plan = _plan(model, recipe, backend, time_limit, shapes=())
    path = output or model.with_suffix(".plan")
    plan.save(path)
    kernels, nodes = len(plan.layers.kernels), len(plan.layers.operators)
    known = {**plan.summary(), "plan": str(path), "bytes": len(plan.data), "kernels": kernels, "onnx_nodes": nodes}
    if not show(as_json, known):
        told = f"{nodes} ONNX nodes, {kernels} kernels, " if kernels else ""
        print(
            f"{path}: {told}{len(plan.data) / 1e6:.1f} MB, built by {plan.backend} {plan.version} in {plan.build_seconds:.1f} s"
            + _with(recipe)
        )
        for line in plan.notes:
            console.note(line)


def layers(
    model: Annotated[
        Path,
        typer.Argument(
            help="an ONNX file, a plan of `course build`, a file of trtexec --exportLayerInfo, a build log, or a PyTorch module: "
            "package.module:factory or FILE.py:factory",
            show_default=False,
        ),
    ],
    recipe: RecipeFile = None,
    backend: BackendName = None,
    time_limit: TimeLimit = 600,
    shapes: Annotated[
        list[str] | None,
        typer.Option("--shape", metavar="NAME=SHAPE", help="such as x=4x1x32x32, or x=MIN:OPT:MAX; may be repeated"),
    ] = None,
    options: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="NAME=VALUE", help="of Torch-TensorRT: min_block_size=1; may be repeated"),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(help="another file of these kinds to compare with, such as the float engine's; ONNX is built in FP32"),
    ] = None,
    html: Annotated[Path | None, typer.Option(help="write the drawing of nodes and kernels to this page")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the kernels of an engine, and what each one fuses.

    With bytes, dtypes and formats; for a PyTorch module also its blocks.
    """
    from course_lib.cli import console, module_layers
    from course_lib.profiling.readers.trtexec import read_layers

    if module_layers.names_module(str(model)):
        if html:
            raise typer.BadParameter(
                "it draws a graph, and a module may have several: export the module to ONNX", param_hint="--html"
            )
        found = module_layers.blocks(str(model), shapes or (), options or (), time_limit_s=time_limit)
        if not show(as_json, found.to_json()):
            module_layers.show(found, options or ())
        return
    known: dict[str, object]
    notes: tuple[str, ...]
    if model.suffix in _LAYER_FILES:
        table, known, title, notes = read_layers(model), {"file": str(model)}, str(model), ()
    else:
        recipe = recipe or _beside(model)
        try:
            plan = _plan(model, recipe, backend, time_limit, shapes=shapes or ())
        except BuildError as error:
            if error.code != PROFILE or recipe or shapes:
                raise
            from course_lib.cli.building import one_of_each

            raise BuildError(f"{error}, or pass {one_of_each(model)}, or ranges as MIN:OPT:MAX", code=PROFILE) from None
        table, notes = plan.layers, plan.notes
        known = {"backend": plan.backend, "targets": plan.targets}
        title = f"{model}, built by {plan.title}{_with(recipe)}"
    if against:
        from course_lib.engines.layers import COMPARE_WITH_FLOAT
        from course_lib.profiling import diff

        is_file = against.suffix in _LAYER_FILES
        other = (
            read_layers(against)
            if is_file
            else _plan(against, recipe, backend, time_limit, shapes=shapes or (), precision="fp32").layers
        )
        known["compared"] = f"from {against} to {model}, {diff(other, table).headline}"
        notes = (*(note.removesuffix(COMPARE_WITH_FLOAT) for note in notes), str(known["compared"]))
    kernels = [
        {**row, "kernel": kernel.name, "bytes": kernel.bytes} for row, kernel in zip(table.rows(), table.kernels, strict=True)
    ]
    if html and not kernels:
        raise CourseError(f"{html} was not written: {title} reports no kernels, so there is nothing to draw")
    if html:
        from course_lib.cli.drawn_layers import layers_page

        html.write_text(layers_page(table, title), encoding="utf-8")
    if not show(as_json, {**known, "onnx_nodes": len(table.operators), "kernels": kernels}):
        console.layers(table, title, notes, drawing=str(html or ""))


def bench(
    model: Annotated[Path, typer.Argument(help="an ONNX file, or a plan that `course build` wrote", show_default=False)],
    recipe: RecipeFile = None,
    backend: BackendName = None,
    against: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="another ONNX file or plan with the same inputs; may be repeated")
    ] = None,
    shapes: Annotated[
        list[str] | None,
        typer.Option(
            "--shape", metavar="NAME=SHAPE", help="default: the recipe's opt, or the model's, with batch 1; may be repeated"
        ),
    ] = None,
    seconds: Annotated[float, typer.Option(min=1, help="measure at most this long")] = 20,
    as_json: AsJson = False,
) -> None:
    """Measure the latency of an engine, or compare engines.

    With --against, the table has paired speedups over the first model with their intervals.
    """
    from course_lib.cli import bench_files, console
    from course_lib.cli.shape_option import shapes_of
    from course_lib.grading.isolation import sandbox

    if any(one.suffix == ".plan" for one in (model, *(against or []))) and (problem := sandbox.problem()) and not as_json:
        console.complain(
            f"no sandbox ({problem}): a plan is executable code and runs with your permissions. Measure only plans of your own"
        )
    files, given = [model, *(against or [])], shapes_of(shapes or (), ranges=False)
    recipe = recipe or _beside(model)
    measured = bench_files.bench(files, _recipe(recipe), backend=backend, seconds=seconds, given=given)
    if not show(as_json, measured):
        console.bench(measured, _with(recipe))


def profile(
    file: Annotated[
        Path,
        typer.Argument(
            help="a file of trtexec --exportProfile or --exportTimes, a log of trtexec --dumpProfile, an export of Nsight Systems "
            "(.sqlite), a table of Nsight Compute (.csv), a trace of torch.profiler, or a profile of ONNX Runtime",
            show_default=False,
        ),
    ],
    layers: Annotated[
        Path | None, typer.Option(help="layer information of the same engine (trtexec --exportLayerInfo), for times of layers")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the times in a profiler's file.

    Times of layers, inferences, kernels or a timeline; for timelines the usual faults, too.
    """
    from course_lib.cli import profile_files

    found = profile_files.read(file, layers)
    if not show(as_json, profile_files.to_json(found)):
        profile_files.show(found, str(file))


def _plan(
    model: Path, recipe: Path | None, backend: str | None, time_limit: float, *, shapes: Sequence[str], precision: str = ""
) -> Plan:
    """The plan in a file of that kind, or one built from an ONNX file with the recipe, or with other shapes and another precision."""
    from course_lib import engines
    from course_lib.cli.building import build
    from course_lib.cli.shape_option import BOUNDS, shapes_of
    from course_lib.recipe import Profile

    if model.suffix == ".plan":
        return engines.Plan.load(model)
    options = _recipe(recipe).model_copy(update={"precision": precision} if precision else {})
    if given := shapes_of(shapes):
        ranges = {name: one if isinstance(one, dict) else dict.fromkeys(BOUNDS, one) for name, one in given.items()}
        options = options.model_copy(update={"profiles": (Profile(**ranges),)})
    source, progress = "--shape" if given else "", sys.stderr.isatty()
    return build(model, options, shapes_from=source, backend=backend, time_limit_s=time_limit, progress=progress)


def _beside(model: Path) -> Path | None:
    """The recipe in the folder of an ONNX file, as a lab's export writes it."""
    if model.suffix == ".plan" or not model.is_file():
        return None
    path = model.with_name("recipe.toml")
    return path if path.is_file() else None


def _with(recipe: Path | None) -> str:
    return f", with {recipe}" if recipe else ""


def _recipe(path: Path | None) -> Recipe:
    from course_lib.recipe import Recipe

    return Recipe.load(path) if path else Recipe()
