"""This module takes the place of a lab's reference in everything that learners get. The grader has the reference.

Import the module, not a name from it: Python answers `from ... import name` with its own ImportError.
"""

from __future__ import annotations

from course_lib.errors import ReferenceAbsent

ABSENT = True  # `framework.lab.absent` looks for it


def __getattr__(name: str) -> object:
    """Answers for every function and constant of the reference; names with two underscores are Python's own questions.

    Raises:
        ReferenceAbsent: always.
    """
    if name.startswith("__"):
        raise AttributeError(name)
    raise ReferenceAbsent(f"{__name__} is not part of the learner's bundle, only the grader has it")
