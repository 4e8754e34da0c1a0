"""From solutions to labs: nbgrader removes the solutions, and a check detects a stale lab."""

from __future__ import annotations

import filecmp
import json
import shutil
import tempfile
from pathlib import Path

from course_lib.errors import CourseError
from course_lib.labs import Lab


def release(lab: Lab, root: Path) -> Path:
    """Generate ``labs/NAME`` from ``solutions/NAME`` and return it.

    Raises:
        CourseError: there is no solution, or its grade cells are not those of the lab's tasks.
    """
    target = root / "labs" / lab.name
    with tempfile.TemporaryDirectory() as folder:
        made = _generate(lab, root, Path(folder))
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(made, target)
    return target


def stale(lab: Lab, root: Path) -> list[str]:
    """Names of the files in which ``labs/NAME`` differs from what its solution generates; empty when it is up to date."""
    with tempfile.TemporaryDirectory() as folder:
        made, kept = _generate(lab, root, Path(folder)), root / "labs" / lab.name
        names = {str(path.relative_to(base)) for base in (made, kept) for path in base.rglob("*") if path.is_file()}
        names = {name for name in names if ".ipynb_checkpoints" not in name and Path(name).name not in lab.artifacts}
        _, different, absent = filecmp.cmpfiles(made, kept, names, shallow=False)
        return sorted(different + absent)


def check_grade_cells(lab: Lab, root: Path) -> None:
    """Whether the solution's notebook has one automatic grade cell for each task of the lab, with its id and its points.

    Raises:
        CourseError: it has others; the text names each difference.
    """
    notebook = root / "solutions" / lab.name / f"{lab.name}.ipynb"
    try:
        cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        known = [cell["metadata"].get("nbgrader", {}) for cell in cells]
        # A grade cell that is a solution, too, is a written question: an instructor gives its points.
        graded = {cell["grade_id"]: cell.get("points") for cell in known if cell.get("grade") and not cell.get("solution")}
    except FileNotFoundError:
        raise CourseError(f"{notebook} does not exist: the notebook has the name of the lab") from None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise CourseError(f"{notebook} is not a notebook with nbgrader's metadata ({type(error).__name__}: {error})") from None
    wanted = {task.id: task.points for task in lab.tasks}
    problems = [f"no cell for the task {task!r}" for task in wanted if task not in graded]
    problems += [
        f"the cell {task!r} has {graded[task]} points, the task {points:g}"
        for task, points in wanted.items()
        if task in graded and graded[task] != points
    ]
    problems += [f"the cell {cell!r} is not a task of the lab" for cell in graded if cell not in wanted]
    if problems:
        raise CourseError(
            f"{notebook} does not fit the tasks in lab.py: {'; '.join(problems)}. "
            "Change `grade_id` and `points` in the metadata of these cells, or the tasks"
        )


def _generate(lab: Lab, root: Path, work: Path) -> Path:
    from nbgrader.converters import GenerateAssignment
    from traitlets.config import Config

    from course_lib.grading.nbgrader.bridge import configure, convert

    source = root / "solutions" / lab.name
    if not source.is_dir():
        raise CourseError(f"{source} does not exist: a lab is generated from its solution")
    check_grade_cells(lab, root)
    shutil.copytree(source, work / "solutions" / lab.name, ignore=shutil.ignore_patterns(*lab.artifacts, ".ipynb_checkpoints"))
    config = Config()
    configure(config, root=work, work=".")
    if failed := convert(GenerateAssignment, lab.name, config, work):
        raise CourseError(f"nbgrader cannot generate {lab.name}: {failed}")
    return work / "labs" / lab.name
