"""The labs: one module a lab holds the problem, its checks with hints and its thresholds, for learner and grader alike."""

from __future__ import annotations

from importlib import import_module

from course_lib.errors import CourseError
from course_lib.labs.base import Bench, Examination, Lab, Outcome, Task

__all__ = ["Bench", "Examination", "Lab", "Outcome", "Task", "find", "names"]

_MODULES = {
    "lab01_first_engine": "course_lib.labs.lab01",
    "lab02_fusion": "course_lib.labs.lab02",
    "lab03_calibration": "course_lib.labs.lab03",
    "lab04_mixed_precision": "course_lib.labs.lab04",
    "lab05_dynamic_shapes": "course_lib.labs.lab05",
    "lab06_plugin": "course_lib.labs.lab06",
    "lab07_profiling": "course_lib.labs.lab07",
    "lab08_serving": "course_lib.labs.lab08",
    "lab09_capstone": "course_lib.labs.lab09",
}


def names() -> tuple[str, ...]:
    """Full names of all labs, which are also the names of their folders."""
    return tuple(_MODULES)


def find(name: str) -> Lab:
    """A lab by its full name or the first part of it, such as ``"lab01"``.

    Raises:
        CourseError: none or several labs begin like that.
    """
    matches = [known for known in _MODULES if known == name or known.startswith(f"{name}_")]
    if len(matches) != 1:
        raise CourseError(f"no lab {name!r}: the course has {', '.join(_MODULES)}")
    lab = import_module(_MODULES[matches[0]]).lab
    assert isinstance(lab, Lab)
    return lab
