"""Which exercises a reader has solved: one empty file for each, so that nothing can be half written or contradict itself."""

from __future__ import annotations

import re
from pathlib import Path

from course_lib._util.files import state_folder
from course_lib.errors import CourseError


def folder() -> Path:
    """Where the files are, below ``$XDG_STATE_HOME`` or the home folder.

    Raises:
        CourseError: this user has no home folder.
    """
    return state_folder("exercises")


def record(exercise_id: str) -> None:
    """Note that an exercise is solved.

    Raises:
        CourseError: this user has no home folder.
        OSError: the file cannot be written.
    """
    folder().mkdir(parents=True, exist_ok=True)
    (folder() / exercise_id).touch()


def done() -> frozenset[str]:
    """Ids of the solved exercises; none if the folder cannot be read."""
    try:
        return frozenset(file.name for file in folder().iterdir() if re.fullmatch(r"\d+\.\d+", file.name))
    except (CourseError, OSError):
        return frozenset()
