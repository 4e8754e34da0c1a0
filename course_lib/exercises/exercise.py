"""An exercise: what the reader writes, how long it takes, and how the result is examined. Exercises are found by lecture.

``lecture16.toml`` holds the exercises of lecture 16. Numbers are those of TOML. Other arguments and results are literals of Python, so that
a tuple remains a tuple. The module ``lecture16`` holds what has to be computed, by the id of the exercise: ``ARGUMENTS`` of the cases in
the file, and ``EXAMINATIONS``, see `Exercise.examine`.
"""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from course_lib._util.toml_text import loads
from course_lib.errors import CourseError

_FOLDER = Path(__file__).parent
Answer = Callable[..., Any]


class NotYet(Exception):
    """An answer is not right yet. The text says what was found, what was expected, and gives one hint."""


@dataclass(frozen=True)
class Case:
    """One call of the reader's function.

    Attributes:
        arguments: passed by position. An array in them cannot be written to, so that an answer cannot change its input.
        expected: what the right function returns: a number, a text, an array, or a collection of those.
        mistakes: for each usual mistake, the words that explain it, and what it returns for these arguments.
        shown: the call as a message shows it; default: with its arguments.
        tolerance: the largest relative or absolute error. Integers must be exact.
    """

    arguments: tuple[Any, ...]
    expected: Any
    mistakes: Mapping[str, Any] = field(default_factory=dict)
    shown: str = ""
    tolerance: float = 1e-6


@dataclass(frozen=True)
class Exercise:
    """One function that the reader writes.

    Attributes:
        id: number of the lecture, a dot, and the place in the lecture, such as ``"15.1"``.
        title: what is computed, in a few words.
        minutes: that a reader needs.
        difficulty: 1 applies a sentence of the text, 2 combines two ideas, 3 needs an idea that the text does not have.
        importance: 3 is needed in every later lecture or at work each week, 2 in some jobs, 1 explains a detail.
        call: the function's name and parameters, such as ``"cache_bytes(size, tokens)"``.
        hint: what to look at if a case fails in a way that no mistake of the case explains.
        cases: calls with a known result, in the order in which they are made.
        examine: makes further calls after the cases, and raises `NotYet`. It is for results that have a property, not one value.
    """

    id: str
    title: str
    minutes: int
    difficulty: Literal[1, 2, 3]
    importance: Literal[1, 2, 3]
    call: str
    hint: str
    cases: tuple[Case, ...] = ()
    examine: Callable[[Answer], None] | None = None

    @property
    def name(self) -> str:
        """Name of the function that the reader writes."""
        return self.call.partition("(")[0]

    @property
    def lecture(self) -> int:
        """Number of the lecture."""
        return int(self.id.partition(".")[0])


def lecture_numbers() -> tuple[int, ...]:
    """The lectures that have exercises."""
    return tuple(sorted(int(path.stem[7:]) for path in _FOLDER.glob("lecture*.toml")))


@cache
def of_lecture(number: int) -> tuple[Exercise, ...]:
    """The exercises of a lecture in the order of the text.

    Raises:
        CourseError: the lecture does not have any.
    """
    if number not in lecture_numbers():
        raise CourseError(f"lecture {number} has no exercises: expected one of {', '.join(map(str, lecture_numbers()))}")
    file = _FOLDER / f"lecture{number:02}.toml"
    code = vars(import_module(f"course_lib.exercises.{file.stem}")) if file.with_suffix(".py").exists() else {}
    return tuple(_exercise(row, code) for row in loads(file.read_text(encoding="utf-8"))["exercises"])


def _exercise(row: dict[str, Any], code: Mapping[str, Any]) -> Exercise:
    """An exercise from its table, and from what the lecture's module computes for it."""
    arguments, examination = (code.get(name, {}).get(row["id"]) for name in ("ARGUMENTS", "EXAMINATIONS"))
    rows = row.pop("cases", [])
    cases = (_case(each, computed) for each, computed in zip(rows, arguments or [None] * len(rows), strict=True))
    return Exercise(**row, cases=tuple(cases), examine=examination)


def _case(row: dict[str, Any], computed: tuple[Any, ...] | None) -> Case:
    mistakes = {words: _value(returned) for words, returned in row.pop("mistakes", {}).items()}
    arguments = _value(row.pop("arguments")) if computed is None else computed
    return Case(arguments, _value(row.pop("expected")), mistakes, **row)


def _value(written: str | float | list[float]) -> Any:
    return literal_eval(written.strip()) if isinstance(written, str) else written


def find(exercise_id: str) -> Exercise:
    """An exercise by its id.

    Raises:
        CourseError: there is no such exercise.
    """
    number = exercise_id.partition(".")[0]
    known = of_lecture(int(number)) if number.isdecimal() else ()
    for exercise in known:
        if exercise.id == exercise_id:
            return exercise
    known_ids = ", ".join(exercise.id for exercise in known) or 'two numbers, such as "15.1"'
    raise CourseError(f"no exercise {exercise_id!r}: expected {known_ids}")
