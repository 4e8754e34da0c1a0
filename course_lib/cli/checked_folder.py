"""The folder that `course check` examines, and what to say about a folder without any file of the lab."""

from __future__ import annotations

import json
import os
from pathlib import Path

from course_lib import labs
from course_lib._util.files import course_folder
from course_lib.errors import CourseError
from course_lib.labs import Lab


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


def check_has_files(lab: Lab, where: Path, *, given: bool) -> None:
    """Whether a folder has at least one file of the lab. The error names the lab whose files are there instead.

    Args:
        where: the folder from `submission_folder`.
        given: the user named this folder.

    Raises:
        CourseError: it does not have any.
    """
    if files_of(lab, where):
        return
    here = Path.cwd()
    searched = {where} if given else {here, where}
    names = " and ".join(f"{one}{' (this folder)' * (one == here)}" for one in sorted(searched))
    found = "; ".join(filter(None, map(_other_lab, sorted(searched))))
    raise CourseError(
        f"no file of {lab.name} in {names}: expected {', '.join(lab.artifacts)}"
        + (f", found {found}" if found else ". Run the lab's notebook, which writes them")
    )


def files_of(lab: Lab, folder: Path) -> list[str]:
    """The files of a lab's submission that are in a folder."""
    return [name for name in lab.artifacts if os.path.lexists(folder / name)]


def written_points(lab: Lab) -> float:
    """Points of the written questions in the lab's notebook, 0 if it is not found."""
    root = course_folder()
    try:
        cells = json.loads((root / "labs" / lab.name / f"{lab.name}.ipynb").read_bytes())["cells"] if root else []
        known = [cell["metadata"].get("nbgrader", {}) for cell in cells]
        return sum(marks["points"] for marks in known if marks.get("grade") and marks.get("solution"))
    except (OSError, ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return 0.0  # a learner may have damaged a notebook


def _other_lab(folder: Path) -> str:
    """The lab whose files are in a folder, in words. Several labs have files of the same name: the one that misses the fewest is meant."""
    found = {one: files for one in map(labs.find, labs.names()) if (files := files_of(one, folder))}
    shares = {one: len(files) / len(one.artifacts) for one, files in found.items()}
    meant = [one for one in found if shares[one] == max(shares.values())]
    if not meant:
        return ""
    return f"files of {' or '.join(one.name for one in meant)} ({', '.join(found[meant[0]])})"
