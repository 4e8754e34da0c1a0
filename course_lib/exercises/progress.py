"""Which exercises a reader has solved in a course folder: one empty file for each, so that nothing can be half written."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from course_lib._util.files import course_folder, state_folder
from course_lib.errors import CourseError


def folder(root: Path | None = None) -> Path:
    """Where the files are, below ``$XDG_STATE_HOME`` or the home folder: each user has a folder for each course folder.

    Args:
        root: the course's folder, or that of a lab; default: the course's, found from the current folder.

    Raises:
        CourseError: this user has no home folder.
    """
    root = root or course_folder()
    if root is None:
        return state_folder("exercises")
    root = root.resolve()
    return state_folder("exercises") / f"{root.name}-{hashlib.sha256(str(root).encode()).hexdigest()[:12]}"


def record(exercise_id: str) -> None:
    """Note that an exercise is solved.

    Raises:
        CourseError: this user has no home folder.
        OSError: the file cannot be written.
    """
    folder().mkdir(parents=True, exist_ok=True)
    (folder() / exercise_id).touch()


def done(root: Path | None = None) -> frozenset[str]:
    """Ids of the exercises that are solved in a course folder, see `folder`; none if the files cannot be read."""
    try:
        return frozenset(file.name for file in folder(root).iterdir() if re.fullmatch(r"\d+\.\d+", file.name))
    except (CourseError, OSError):
        return frozenset()
