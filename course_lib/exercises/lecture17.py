"""Exercises of lecture 17: contexts that fit into memory, the first wrong tensor, and a search that halves the range."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, log2

import numpy as np

from course_lib.exercises.comparing import shown
from course_lib.exercises.exercise import Answer, NotYet

_NAMES = ("conv1", "norm1", "conv2", "head")
_RIGHT = dict(zip(_NAMES, map(np.array, ([100.0, -200.0], [0.0, 1.0], [1.0, 2.0], [1.0, 1.0])), strict=True))
_WRONG = dict(zip(_NAMES, map(np.array, ([100.005, -200.0], [1e-5, 1.0], [1.0, 2.002], [1.0, 2.0])), strict=True))


class _TooMany(Exception):
    """The search asked more often than it may."""


def _counted(names: list[str], fault: int, most: int) -> tuple[Callable[[str], bool], list[str]]:
    """`is_wrong` for names of which those from `fault` on are wrong; it raises when it is called too often."""
    asked: list[str] = []

    def is_wrong(name: str) -> bool:
        asked.append(name)
        if len(asked) > most:
            raise _TooMany
        return names.index(name) >= fault

    return is_wrong, asked


def _range_is_halved(halved: Answer) -> None:
    for count in (7, 1, 2, 6, 100):
        names = [f"t{place}" for place in range(count)]
        most = ceil(log2(count + 1))
        for fault in range(count + 1):
            right = names[fault] if fault < count else ""
            is_wrong, asked = _counted(names, fault, most)
            call = f"With {count} names and the fault at {right or 'none'}, `halved`"
            try:
                found = halved(list(names), is_wrong)
            except NotYet as problem:
                if not isinstance(problem.__cause__, _TooMany):
                    raise
                again = len(set(asked)) < len(asked)
                hint = "You asked for one name twice." if again else "Ask for the name in the middle of what is left."
                raise NotYet(f"{call} called `is_wrong` more than {most} times, expected at most {most}. {hint}") from problem
            if found != right:
                raise NotYet(f"{call} returned {shown(found)}, expected {right!r}. {_why(found, names, fault)}")


def _why(found: object, names: list[str], fault: int) -> str:
    if fault == len(names):
        return "The last tensor is right, so there is no fault."
    if found in names and names.index(str(found)) > fault:
        return "That tensor is wrong, and it is not the first: keep the middle inside the range if it is wrong."
    if found in names:
        return "That tensor is still right: continue behind the middle if it is right."
    return "The first wrong name is at `low` when the range is empty."


EXAMINATIONS = {"17.3": _range_is_halved}
ARGUMENTS = {
    "17.2": (
        (_RIGHT, _WRONG, 1e-4),
        (_RIGHT, {**_RIGHT, "norm1": np.array([np.nan, 1.0]), "head": np.array([1.0, 2.0])}, 1e-4),
        (_RIGHT, {name: _RIGHT[name] for name in _NAMES[1:]}, 1e-4),
    )
}
