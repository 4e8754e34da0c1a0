"""The folder that `course check` examines, the result of a folder without any file of the lab, and the points."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from course_lib import labs
from course_lib._util.files import course_folder
from course_lib.errors import MISSING_FILE, CourseError

if TYPE_CHECKING:
    from course_lib.grading.judge.review import Points
    from course_lib.labs import Examination, Lab


def submission_folder(lab: Lab, folder: Path | None, root: Path) -> Path:
    """The given folder. Without one, the current folder if it has a file of the lab, else the lab's own folder in the course.

    Args:
        root: the course's folder.

    Raises:
        CourseError: the given folder does not exist or is a file.
    """
    if folder is not None:
        if not folder.is_dir():
            if folder.is_file():
                raise CourseError(f"{folder}: this is a file, expected its folder")
            is_task = str(folder) in [one.id for one in lab.tasks]
            advice = f"; one task is checked with --task {folder}" if is_task else f", expected one such as labs/{lab.name}"
            raise CourseError(f"{folder}: no such folder{advice}")
        return folder.resolve()
    own, here = root / "labs" / lab.name, Path.cwd()
    return here if files_of(lab, here) or not own.is_dir() else own


def nothing_submitted(lab: Lab, where: Path, task: str | None, *, given: bool) -> Examination | None:
    """The result of a folder that has no file of the lab, with the next step; None for any other folder.

    Args:
        where: the folder from `submission_folder`.
        task: the only task that is checked; None: all of them.
        given: the user named this folder.
    """
    if files_of(lab, where):
        return None
    here = Path.cwd()
    searched = {where} if given else {here, where}
    names = " and ".join(f"{one}{' (this folder)' * (one == here)}" for one in sorted(searched))
    found = "; ".join(filter(None, map(_other_lab, sorted(searched))))
    message = f"No file of {lab.name} is in {names}; expected {', '.join(lab.artifacts)}{f', found {found}' * bool(found)}."
    step = f"open labs/{lab.name}/{lab.name}.ipynb in `course lab`, solve its tasks and run all cells. They write the files."
    return labs.Examination(lab.zero_outcomes(CourseError(message, code=MISSING_FILE), step, task and [task]))


def files_of(lab: Lab, folder: Path) -> list[str]:
    """The files of a lab's submission that are in a folder."""
    return [name for name in lab.artifacts if os.path.lexists(folder / name)]


def points_of(lab: Lab, examined: Examination) -> Points:
    """The points of a check. Those of the written answer are open, because an instructor reads it."""
    from course_lib.grading.judge.review import Points

    written = written_points(cells_of(lab, course_folder())) if len(examined.outcomes) == len(lab.tasks) else 0.0
    return Points(examined.points, examined.open_points + written, examined.max_points + written)


def written_points(cells: Iterable[Mapping[str, Any]]) -> float:
    """Points of the written questions in a lab's notebook, 0 if a learner has damaged it."""
    try:
        known = [cell.get("metadata", {}).get("nbgrader", {}) for cell in cells]
        return sum(marks.get("points", 0.0) for marks in known if marks.get("grade") and marks.get("solution"))
    except (LookupError, TypeError, AttributeError):
        return 0.0


def cells_of(lab: Lab, root: Path | None) -> list[dict[str, Any]]:
    """The cells of a lab's notebook in the course's folder `root`, none if it is not found or a learner has damaged it."""
    try:
        cells = json.loads((root / "labs" / lab.name / f"{lab.name}.ipynb").read_bytes())["cells"] if root else []
        return [cell for cell in cells if isinstance(cell, dict)]
    except (OSError, ValueError, RecursionError, LookupError, TypeError):
        return []


def _other_lab(folder: Path) -> str:
    """The lab whose files are in a folder, in words. Several labs have files of the same name: the one that misses the fewest is meant."""
    found = {one: files for one in map(labs.find, labs.names()) if (files := files_of(one, folder))}
    shares = {one: len(files) / len(one.artifacts) for one, files in found.items()}
    meant = [one for one in found if shares[one] == max(shares.values())]
    if not meant:
        return ""
    return f"files of {' or '.join(one.name for one in meant)} ({', '.join(found[meant[0]])})"
