"""Exercises of lecture 17: contexts that fit into memory, the first wrong tensor, and a search that halves the range."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, log2

import numpy as np

from course_lib.exercises.comparing import shown
from course_lib.exercises.exercise import Answer, Case, Exercise, NotYet

_NAMES = ("conv1", "norm1", "conv2", "head")
_RIGHT = dict(zip(_NAMES, map(np.array, ([100.0, -200.0], [0.0, 1.0], [1.0, 2.0], [1.0, 1.0])), strict=True))
_WRONG = dict(zip(_NAMES, map(np.array, ([100.005, -200.0], [1e-5, 1.0], [1.0, 2.002], [1.0, 2.0])), strict=True))
_MODELS = [(100, 30, 5), (200, 50, 5)]


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


EXERCISES = (
    Exercise(
        id="17.1",
        title="How many contexts fit?",
        minutes=10,
        difficulty=2,
        importance=2,
        call="workers_that_fit(free, models, shared)",
        hint="Add up what is needed once, and what one worker needs in addition.",
        cases=(
            Case(
                (600, _MODELS, False),
                3,
                {
                    "The weights belong to the engines, which all workers share: subtract them once.": 1,
                    "A worker that fits only in part does not run: round down.": 4,
                    "Without sharing, a worker needs the scratch memory of every model.": 5,
                    "The weights need memory, too.": 6,
                },
            ),
            Case(
                (600, _MODELS, True),
                5,
                {
                    "With `shared`, one scratch memory of the largest size is enough.": 3,
                    "Each context also has buffers, 10 MB for a worker here.": 6,
                    "The shared memory must be as large as the largest context needs, not the smallest.": 7,
                    "Each worker has its own scratch memory: it is shared by its models, not by all workers.": 25,
                },
            ),
            Case((250, _MODELS, False), 0, {"The weights alone need 300 MB, so no worker fits: return 0.": -1}),
        ),
    ),
    Exercise(
        id="17.2",
        title="The first wrong tensor",
        minutes=10,
        difficulty=2,
        importance=3,
        call="first_wrong(reference, tested, limit)",
        hint="Print the relative error of each tensor, in the order of the graph.",
        cases=(
            Case(
                (_RIGHT, _WRONG, 1e-4),
                "conv2",
                {
                    "`conv1` is off by 0.005, and its values reach 200: divide by the largest value of the reference.": "conv1",
                    "`norm1` contains a zero. Divide by the tensor's largest value, not by each value.": "norm1",
                    "`head` has the largest error, and it only receives what is wrong before it. Return the first.": "head",
                    "You did not find a tensor beyond the limit. `conv2` is off by 0.002 at 2.": "",
                },
                shown="first_wrong(reference, tested, 1e-4)",
            ),
            Case(
                (_RIGHT, {**_RIGHT, "norm1": np.array([np.nan, 1.0]), "head": np.array([1.0, 2.0])}, 1e-4),
                "norm1",
                {
                    "`norm1` contains NaN, and `error > limit` is false for it. Ask whether the error is within the limit.": "head",
                    "`norm1` contains NaN, which is wrong, too.": "",
                },
                shown="first_wrong(reference, NaN in norm1, 1e-4)",
            ),
            Case(
                (_RIGHT, {name: _RIGHT[name] for name in _NAMES[1:]}, 1e-4),
                "",
                {"`conv1` is not in the tested graph, because it was fused. Skip it.": "conv1"},
                shown="first_wrong(reference, a right graph without conv1, 1e-4)",
            ),
        ),
    ),
    Exercise(
        id="17.3",
        title="Halve the range",
        minutes=12,
        difficulty=2,
        importance=3,
        call="halved(names, is_wrong)",
        hint="Keep `low` and `high` so that the first wrong name is always between them.",
        examine=_range_is_halved,
    ),
)
