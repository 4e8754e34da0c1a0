"""The `course` command. Each subcommand is a few lines over the library; errors are one line and a non-zero status."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from course_lib import __version__
from course_lib.errors import BackendUnavailable, CourseError

app = typer.Typer(
    help="The TensorRT course: build engines, measure them, check and grade labs.",
    add_completion=False,
    pretty_exceptions_enable=False,
)

# click's class for a wrong command line, which typer bundles under names that change with its version
_UsageError: Any = typer.BadParameter.__mro__[1]

Model = Annotated[Path, typer.Argument(help="an ONNX file", show_default=False)]
RecipeFile = Annotated[Path | None, typer.Option("--recipe", "-r", help="a recipe.toml; default: FP32, fixed shapes")]
AsJson = Annotated[bool, typer.Option("--json", help="print one JSON document and nothing else")]
BackendName = Annotated[
    str | None, typer.Option("--backend", "-b", help="a backend of `course doctor`, or backend@environment")
]
TimeLimit = Annotated[float, typer.Option(help="stop the compiler after this many seconds")]
START = "lectures/00_start_here.ipynb"
_CHECK_S = 60.0  # a usual check of a whole lab, on two cores
LabName = Annotated[str, typer.Argument(help="a lab, such as lab01", show_default=False)]


def _print_version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="print the version and leave", callback=_print_version, is_eager=True)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="show tracebacks")] = False,
) -> None:
    os.environ["COURSE_DEBUG"] = "1" if debug else os.environ.get("COURSE_DEBUG", "")
    if context.invoked_subcommand is None:
        print(context.get_help())


def main() -> None:
    """Entry point: one clear line for whatever goes wrong, a traceback only with ``--debug``."""
    try:
        sys.exit(app(standalone_mode=False))
    except _UsageError as error:
        _leave(error, f"{error.format_message().rstrip('.')}; `course --help` lists what there is", status=2)
    except CourseError as error:
        _leave(error, str(error))
    except ModuleNotFoundError as error:
        from course_lib.installation import advice

        _leave(error, advice(error))
    except KeyboardInterrupt as error:
        _leave(error, "interrupted")
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os._exit(1)
    except OSError as error:
        _leave(error, f"{error.filename or 'a file'}: {error.strerror or error}")
    except Exception as error:  # a bug of ours is still no reason for a page of text
        _leave(error, f"internal error, please report it: {type(error).__name__}: {error}")


def _leave(error: BaseException, text: str, status: int = 1) -> None:
    if os.environ.get("COURSE_DEBUG"):
        raise error
    print(f"course: {' '.join(text.split())}", file=sys.stderr)
    sys.exit(status)


def _show(as_json: bool, document: Any) -> bool:
    if as_json:
        print(json.dumps(document, indent=1))
    return as_json


def _recipe(path: Path | None) -> Any:
    from course_lib.recipe import Recipe

    return Recipe.load(path) if path else Recipe()


def _plan(model: Path, recipe: Path | None, backend: str | None, time_limit: float) -> Any:
    """The plan in a file of that kind, or one built from an ONNX file."""
    from course_lib import engines

    if model.suffix == ".plan":
        return engines.Plan.load(model)
    return engines.build(model, _recipe(recipe), backend=backend, time_limit_s=time_limit, progress=sys.stderr.isatty())


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """What this machine can do, and what to install."""
    from course_lib import console, installation
    from course_lib.engines import available_backends, default_builder, default_runner, environments
    from course_lib.engines.backends import backend
    from course_lib.engines.cuda_driver import capability
    from course_lib.grading import sandbox
    from course_lib.grading.confinement import enforced_by

    builder, runner = backend(default_builder()), None
    with contextlib.suppress(BackendUnavailable):
        runner = default_runner()
    found = {
        "course": __version__,
        "python": sys.version.split()[0],
        "missing": installation.missing_packages(),
        "gpu": capability(),
        "backends": [one.to_json() for one in available_backends()],
        "environments": {name: list(environment.command) for name, environment in environments().items()},
        "builds_with": None if builder.no_build else builder.name,
        "runs_with": runner,
        "sandbox": sandbox.problem() or "ok",
        "limits": enforced_by(),
    }
    if not _show(as_json, found):
        console.doctor(found)


@app.command()
def build(
    model: Model,
    recipe: RecipeFile = None,
    backend: BackendName = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="where the plan goes; default: MODEL.plan")] = None,
    time_limit: TimeLimit = 600,
    as_json: AsJson = False,
) -> None:
    """Build a plan from an ONNX file and a recipe."""
    plan = _plan(model, recipe, backend, time_limit)
    path = output or model.with_suffix(".plan")
    plan.save(path)
    kernels, nodes = len(plan.layers.kernels), len(plan.layers.operators)
    known = {**plan.summary(), "plan": str(path), "bytes": len(plan.data), "kernels": kernels, "onnx_nodes": nodes}
    if not _show(as_json, known):
        told = f"{nodes} ONNX nodes, {kernels} kernels, " if kernels else ""
        print(
            f"{path}: {told}{len(plan.data) / 1e6:.1f} MB, built by {plan.backend} {plan.version} in {plan.build_seconds:.1f} s"
        )
        for note in plan.notes:
            print(f"note: {note}")


@app.command()
def layers(
    model: Annotated[Path, typer.Argument(help="an ONNX file, or a plan that `course build` wrote", show_default=False)],
    recipe: RecipeFile = None,
    backend: BackendName = None,
    time_limit: TimeLimit = 600,
    as_json: AsJson = False,
) -> None:
    """Kernels, dtypes and formats of an engine, and which ONNX nodes each kernel swallowed."""
    from course_lib import console

    plan = _plan(model, recipe, backend, time_limit)
    table = plan.layers
    known = {"backend": plan.backend, "targets": plan.targets, "onnx_nodes": len(table.operators), "kernels": table.rows()}
    if not _show(as_json, known):
        console.layers(plan)


@app.command()
def bench(
    model: Annotated[Path, typer.Argument(help="an ONNX file, or a plan that `course build` wrote", show_default=False)],
    recipe: RecipeFile = None,
    backend: BackendName = None,
    against: Annotated[
        list[Path] | None, typer.Option(help="another ONNX file or plan with the same inputs; may be repeated")
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="size of every dynamic dimension")] = 1,
    seconds: Annotated[float, typer.Option(min=1, help="measure at most this long")] = 20,
    as_json: AsJson = False,
) -> None:
    """Latency of an engine; with --against, paired speedups over the first model with their intervals."""
    from course_lib import bench_files, console

    measured = bench_files.bench([model, *(against or [])], _recipe(recipe), backend=backend, batch=batch, seconds=seconds)
    if not _show(as_json, measured):
        console.bench(measured)


@app.command()
def check(
    lab: LabName,
    folder: Annotated[Path | None, typer.Argument(help="folder of the hand-in; default: this one, or the lab's own")] = None,
    as_json: AsJson = False,
) -> None:
    """A learner's own check of a hand-in, with hints. Status 1 when points are missing."""
    from course_lib import console, labs
    from course_lib.labs import Bench
    from course_lib.steps import Steps

    chosen = labs.find(lab)
    where = _hand_in_folder(chosen, folder)
    with Steps(shown=not as_json) as steps:
        steps.begin(f"{chosen.title}: {', '.join(task.id for task in chosen.tasks)}", _CHECK_S)
        examined = chosen.examine(where, Bench(begins=steps.begin))
    known = {"lab": chosen.name, "score": examined.points, "max_score": examined.max_points}
    if not _show(as_json, {**known, "tasks": [outcome.to_json() for outcome in examined.outcomes]}):
        console.outcomes(chosen, examined)
    if examined.points < examined.max_points:
        raise typer.Exit(1)


def _hand_in_folder(lab: Any, folder: Path | None) -> Path:
    if folder is not None:
        if not folder.is_dir():
            raise CourseError(f"{folder}: no such folder")
        return folder
    own = _root() / "labs" / lab.name
    here = Path.cwd()
    return own if not any((here / name).exists() for name in lab.artefacts) and own.is_dir() else here


@app.command()
def release(
    lab: Annotated[str | None, typer.Argument(help="a lab; default: all", show_default=False)] = None,
    check_only: Annotated[bool, typer.Option("--check", help="change nothing, status 1 when a lab is stale")] = False,
    as_json: AsJson = False,
) -> None:
    """Generate labs/ from solutions/."""
    from course_lib import labs
    from course_lib.grading import release as releasing

    chosen = [labs.find(lab)] if lab else [labs.find(name) for name in labs.names()]
    if check_only:
        stale = {one.name: files for one in chosen if (files := releasing.stale(one, _root()))}
        if not _show(as_json, {"stale": stale}):
            for name, files in stale.items():
                print(f"labs/{name} is stale ({', '.join(files)}): run `course release {name}`")
        if stale:
            raise typer.Exit(1)
        return
    made = [str(releasing.release(one, _root())) for one in chosen]
    if not _show(as_json, {"released": made}):
        print("\n".join(made))


@app.command()
def grade(
    lab: LabName,
    student: Annotated[str | None, typer.Option(help="one student; default: everybody who handed in")] = None,
    classroom: Annotated[str, typer.Option(help="folder of hand-ins and grades")] = "classroom",
    builder: Annotated[str | None, typer.Option(help="backend that proves layers and profiles")] = None,
    runner: Annotated[str | None, typer.Option(help="backend that runs and is measured")] = None,
    trusted: Annotated[bool, typer.Option("--trusted", help="without the sandbox; only for files of your own")] = False,
    workers: Annotated[int, typer.Option(min=1, help="processes on this machine; with GPUs, each gets one in turn")] = 1,
    scheduler: Annotated[
        str | None, typer.Option(help="address of a Dask scheduler whose workers grade instead, such as tcp://10.0.0.1:8786")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Autograde hand-ins under CLASSROOM/submitted/STUDENT/LAB and write reports and feedback.

    After an interruption the same command goes on where it was.
    """
    from course_lib import console, labs

    chosen = labs.find(lab)  # before nbgrader is imported, so that a wrong name is said at once
    from course_lib.grading.classroom import Classroom

    bench = {key: value for key, value in (("builder", builder), ("runner", runner)) if value}
    room = Classroom(_root(), classroom, trusted, bench)
    students = [student] if student else room.students(chosen)
    missing = [name for name in students if name not in room.students(chosen)]
    if missing or not students:
        raise CourseError(
            f"nothing handed in: expected {room.folder / 'submitted' / (missing or ['STUDENT'])[0] / chosen.name}"
        )
    if workers > 1 and scheduler:
        raise typer.BadParameter("--workers starts processes here, --scheduler names those of a cluster: give one of the two")
    grades = room.grade(chosen, students, workers=workers, scheduler=scheduler, progress=sys.stderr.isatty())
    if not _show(as_json, {"lab": chosen.name, "grades": [one.to_json() for one in grades]}):
        console.grades(chosen, grades)
    if any(one.error for one in grades):
        raise typer.Exit(1)


@app.command()
def report(
    lab: LabName,
    classroom: Annotated[str, typer.Option(help="folder of hand-ins and grades")] = "classroom",
    csv: Annotated[Path | None, typer.Option(help="also write the final points to this file")] = None,
    form: Annotated[str, typer.Option("--format", help="of the CSV file: nbgrader, moodle or canvas")] = "nbgrader",
    leaderboard: Annotated[bool, typer.Option("--leaderboard", help="also write a page with ranks, for everybody")] = False,
    anonymous: Annotated[bool, typer.Option("--anonymous", help="the leaderboard with pseudonyms")] = False,
    as_json: AsJson = False,
) -> None:
    """A class on one lab: points, hard tasks, who needs an instructor, who was late, identical files. Writes a page."""
    from course_lib import console, labs
    from course_lib.grading.class_files import write
    from course_lib.grading.classroom import Classroom

    made = write(labs.find(lab), Classroom(_root(), classroom), csv, form, leaderboard=leaderboard, anonymous=anonymous)
    if not _show(as_json, made.to_json()):
        console.class_report(made)


@app.command()
def verify(
    verdict: Annotated[Path, typer.Argument(help="the JSON beside a report: CLASSROOM/reports/STUDENT/LAB.json")],
    classroom: Annotated[Path | None, typer.Option(help="whose key must have signed it; default: the one it lies in")] = None,
    as_json: AsJson = False,
) -> None:
    """Whether a verdict is as the grader signed it, and follows from the latencies it holds. Status 1 when not."""
    from course_lib.grading import recompute, signature

    try:
        document = json.loads(verdict.read_bytes())
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise CourseError(f"{verdict} is no verdict: expected the JSON that `course grade` writes beside a report")
    room = classroom or verdict.absolute().parent.parent.parent
    key = signature.public_key(signature.signing_key(room)) if (room / signature.KEY_FILE).exists() else None
    found = recompute.contradictions(document, key)
    if not _show(as_json, {"verdict": str(verdict), "key": key, "contradictions": found}):
        print(
            "\n".join(found)
            or f"{verdict}: signed by {'this classroom' if key else 'the key it names'}, and follows from its record"
        )
    if found:
        raise typer.Exit(1)


@app.command()
def migrate(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH...", exists=True, help="programs, notebooks, scripts, READMEs, folders", show_default=False
        ),
    ],
    to: Annotated[
        str, typer.Option(help="a version, such as 8.6, 10.3, 11.4 or rtx; without a table it gets the nearest")
    ] = "11.4",
    output: Annotated[
        str,
        typer.Option(
            "--format", help="table, lines, json, sarif or github; default: table, lines in a pipe", show_default=False
        ),
    ] = "",
    exclude: Annotated[
        list[str] | None, typer.Option(help="leave out what matches in folders: third_party, 'docs/*.md'; may be repeated")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """What in this code TensorRT removed, deprecated, ignores or never had, and what replaces it.

    Formats: table is for reading. lines is one finding a line, "path:line: severity name: advice", for editors and grep. json is one
    document. sarif is a SARIF 2.1.0 log, for code scanning. github is annotations for a workflow of GitHub Actions.

    A line with the comment "# migrate: ignore" is left out, with "# migrate: ignore[BuilderFlag.FP16]" that name alone.

    Status 1 when something is removed, unknown or ignored, 2 when a file cannot be read, 0 otherwise.
    """
    from course_lib import console
    from course_lib.migration import report, scan, scanner

    output = "json" if as_json else output or ("table" if sys.stdout.isatty() else "lines")
    if output not in report.FORMATS:
        raise typer.BadParameter(f"no format {output!r}: there are {', '.join(report.FORMATS)}")
    try:
        scanner.target_version(to)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    found = scan(paths, to, exclude or ())
    if output in ("json", "sarif"):
        _show(True, report.document(found) if output == "json" else report.sarif(found, __version__))
    elif output == "table":
        for title, columns, rows in report.tables(found):
            console.table(title, columns, rows)
        print("\n".join(report.summary(found)))
    else:
        written = report.github(found) if output == "github" else report.lines(found)
        print("\n".join([*written, *report.summary(found)]))
    if found.fails or found.unread:
        raise typer.Exit(1 if found.fails else 2)


@app.command()
def demo(as_json: AsJson = False) -> None:
    """The whole loop on a real model: build, measure, grade, report."""
    from course_lib import console
    from course_lib.demo import run

    shown = run(_root(), say=None if as_json else print)
    if not _show(as_json, shown):
        console.demo(shown)


@app.command()
def lab(
    instructor: Annotated[bool, typer.Option("--instructor", help='with nbgrader\'s "Create Assignment"')] = False,
    as_json: AsJson = False,
) -> None:
    """Open JupyterLab at the course. With --json, say first what is started where; Jupyter's own messages go to stderr.

    With --instructor it also has nbgrader's "Create Assignment", which learners do not need.
    """
    os.chdir(_root())
    command = [sys.executable, "-m", "jupyterlab", "--ServerApp.root_dir=.", f"--LabApp.default_url=/lab/tree/{START}"]
    configured = [Path(__file__).with_name("jupyter") / who for who in ("everybody", *([] if instructor else ["learners"]))]
    own = filter(None, (*map(str, configured), os.environ.get("JUPYTER_CONFIG_PATH")))
    os.environ["JUPYTER_CONFIG_PATH"] = os.pathsep.join(own)
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")  # Jupyter refuses root, who is the usual user of a rented GPU machine
    _show(as_json, {"root": os.getcwd(), "command": command, "pid": os.getpid()})
    sys.stdout.flush()
    os.execv(sys.executable, command)


def _root() -> Path:
    from course_lib.files import course_folder

    if found := course_folder():
        return found
    raise CourseError("the course's folder was not found: go there, or name it in the variable COURSE_ROOT")


if __name__ == "__main__":
    main()
