"""The course itself: `course start`, `doctor`, `progress`, `demo`, `lab`, `release`, `new-lab`."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

import course_lib
from course_lib import __version__
from course_lib.cli.commands.options import AsJson, course_root, instructors_root, show

_FIRST_PAGE = "lectures/00_start_here.ipynb"


def start(
    target: Annotated[Path, typer.Argument(metavar="DIR", help="a folder that is empty or does not exist", show_default=False)],
) -> None:
    """Write the lectures and labs of an installed course to a folder."""
    from course_lib.grading.nbgrader import bundle

    count = bundle.start(target)
    print(f"{target}: {count} files, among them all lectures and labs\nnext: cd {shlex.quote(str(target))} && course lab")


def doctor(as_json: AsJson = False) -> None:
    """Show what this machine can do, and what to install."""
    from course_lib.cli import console
    from course_lib.cli.machine import this_machine
    from course_lib.engines import available_backends, environments
    from course_lib.grading.isolation import sandbox
    from course_lib.grading.isolation.confinement import enforced_by

    machine = this_machine()
    found = {
        "course": __version__,
        "python": sys.version.split()[0],
        "ready": machine.ready,
        "missing": machine.missing,
        "gpu": machine.gpu or None,
        "backends": [one.to_json() for one in available_backends()],
        "environments": {name: list(environment.command) for name, environment in environments().items()},
        "builds_with": machine.builder and machine.builder.name,
        "runs_with": machine.runner and machine.runner.name,
        "sandbox": sandbox.problem() or "ok",
        "limits": enforced_by(),
    }
    if not show(as_json, found):
        console.doctor(found)


def progress(as_json: AsJson = False) -> None:
    """Show your solved exercises, and the files written for each lab."""
    from course_lib.cli.progress import progress_of, show_progress

    if as_json:
        show(as_json, progress_of().to_json())
    else:
        show_progress()


def demo() -> None:
    """Build, measure, grade and report on one real model."""
    from course_lib.cli import console
    from course_lib.cli.demo import run

    console.demo(run(course_root()))


def lab(
    instructor: Annotated[bool, typer.Option("--instructor", help="with nbgrader's buttons and pages")] = False,
) -> None:
    """Open JupyterLab at the course.

    With --instructor it also has nbgrader's extensions, such as "Create Assignment" and formgrader. `course check` and the check
    cells of a lab tell learners more than its "Validate".
    """
    os.chdir(course_root())
    command = [sys.executable, "-m", "jupyterlab", "--log-level=WARN"]  # with its own token, it still shows its address
    print("JupyterLab starts; `jupyter server list` shows its address, and Ctrl+C stops it.", flush=True)
    command += ["--ServerApp.root_dir=.", f"--LabApp.default_url=/lab/tree/{_FIRST_PAGE}"]
    folder = Path(course_lib.__file__).with_name("jupyter")
    configured = [str(folder / who) for who in ("everybody", *([] if instructor else ["learners"]))]
    for variable in ("JUPYTER_CONFIG_PATH", "JUPYTER_PATH"):
        os.environ[variable] = os.pathsep.join(filter(None, (*configured, os.environ.get(variable))))
    os.environ["COURSE_FIGURES"] = "svg"  # kernels draw figures that follow JupyterLab's theme
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")  # Jupyter does not run as root, which is the usual user of a rented GPU machine
    os.execv(sys.executable, command)


def release(
    lab: Annotated[str | None, typer.Argument(help="a lab; default: all", show_default=False)] = None,
    check_only: Annotated[bool, typer.Option("--check", help="change nothing, status 1 when a lab is stale")] = False,
    bundle: Annotated[Path | None, typer.Option(help="write everything that learners get to this empty folder")] = None,
    as_json: AsJson = False,
) -> None:
    """Generate labs/ from solutions/, or the folder for learners."""
    from course_lib import labs
    from course_lib.grading.nbgrader import bundle as bundles
    from course_lib.grading.nbgrader import learner_version as releasing

    if bundle:
        if lab or check_only:
            raise typer.BadParameter("--bundle holds all labs: give it alone")
        count = bundles.write(course_root(), bundle)
        if not show(as_json, {"bundle": str(bundle), "files": count}):
            print(f"{bundle}: {count} files for learners")
        return

    chosen = [labs.find(lab)] if lab else [labs.find(name) for name in labs.names()]
    root = instructors_root("generating labs")
    if check_only:
        stale = {one.name: files for one in chosen if (files := releasing.stale(one, root))}
        if not show(as_json, {"stale": stale}):
            for name, files in stale.items():
                print(f"labs/{name} is stale ({', '.join(files)}): run `course release {name}`")
        if stale:
            raise typer.Exit(1)
        return
    made = [str(releasing.release(one, root)) for one in chosen]
    if not show(as_json, {"released": made}):
        print("\n".join(made))


def new_lab(name: Annotated[str, typer.Argument(help="two digits and words, such as lab42_batches")]) -> None:
    """Write a new lab from templates: package, notebook and test."""
    from course_lib import labs
    from course_lib.cli.new_lab import write
    from course_lib.grading.nbgrader.learner_version import release as released

    root = instructors_root("writing a lab")
    files = write(name, root)
    labs.refresh()
    released(labs.find(name), root)
    print("\n".join(str(file.relative_to(root)) for file in files))
    print("Start with lab.py and checks.py. docs/contributing.md says what to do before the lab leaves its draft.")
