"""Shared parts of several commands: options, the folder of the course, and the output as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from course_lib.errors import CourseError

AsJson = Annotated[bool, typer.Option("--json", help="print one JSON document and nothing else")]
LabName = Annotated[str, typer.Argument(help="a lab, such as lab01", show_default=False)]


def show(as_json: bool, document: Any) -> bool:
    """Print the document if JSON is requested. Return whether it was."""
    if as_json:
        print(json.dumps(document, indent=1))
    return as_json


def course_root() -> Path:
    """The folder with `labs/` and `solutions/`. Raises CourseError when the current folder and COURSE_ROOT do not lead to it."""
    from course_lib._util.files import course_folder

    if found := course_folder():
        return found
    raise CourseError(
        "the course's folder was not found: change to it, set COURSE_ROOT to its path, or write one with `course start DIR`"
    )


def instructors_root(what: str) -> Path:
    """`course_root`, of a course that has references and solutions.

    Raises:
        CourseError: as `course_root`; or this is the learner's bundle, which is not enough for `what`.
    """
    root = course_root()
    if not (root / "solutions").is_dir():
        raise CourseError(
            f"{what} needs the instructor's copy of the course, and {root} is the learner's bundle, which has no solutions/. "
            "To check your own files, run `course check LAB`"
        )
    return root
