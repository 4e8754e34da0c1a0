"""`check` examines an answer, shows the result, and notes a right answer in the reader's progress. It never raises for a wrong one."""

from __future__ import annotations

import linecache
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from course_lib._util.html import GREEN, RED, check_card
from course_lib._util.progress_bar import in_notebook
from course_lib.errors import CourseError
from course_lib.exercises import progress
from course_lib.exercises.comparing import same, shown
from course_lib.exercises.exercise import Answer, Case, Exercise, NotYet, find, of_lecture

_LONGEST = 200  # characters of an error's text; those of PyTorch have whole pages

# What usually causes an error, by its class.
_CAUSES: dict[type[Exception], str] = {
    NameError: "The name is not defined: run the cells above this one, or check the spelling.",
    ZeroDivisionError: "A divisor is zero: find the argument for which that happens, and treat it first.",
    IndexError: "An index is beyond the end: the last element of n has the index n - 1.",
    KeyError: "The dictionary does not have this key: `name in dictionary` asks, and `dictionary.get(name)` returns None.",
    AttributeError: "The object does not have this attribute: print its type, and check the spelling.",
    TypeError: "A value has another type than the line expects: print the types of the values in it.",
    RecursionError: "The function calls itself without an end: it needs a case that returns before the call.",
}


def check(exercise_id: str, answer: Answer) -> None:
    """Examine an answer and show one line, in a notebook as a card: right, or what was found, what was expected, and one hint.

    Args:
        exercise_id: such as ``"15.1"``.
        answer: the function that the reader wrote, not its result.

    Raises:
        CourseError: there is no such exercise.
    """
    exercise = find(exercise_id)
    if complaint := examine(exercise, answer):
        _show(exercise, "not yet", complaint)
        return
    siblings = of_lecture(exercise.lecture)
    try:
        progress.record(exercise.id)
    except (CourseError, OSError) as error:
        _show(exercise, "right", f"Your progress could not be saved: {error}")
        return
    done = sum(each.id in progress.done() for each in siblings)
    _show(exercise, "right", f"You have solved {done} of the {len(siblings)} exercises of lecture {exercise.lecture}.")


def _show(exercise: Exercise, mark: str, words: str) -> None:
    text = f"{exercise.id} {mark}{'.' if mark == 'right' else ':'} {words}"
    if not in_notebook():
        print(text)
        return
    from IPython.display import display

    color = GREEN if mark == "right" else RED
    card = check_card(f"Exercise {exercise.id}, {exercise.title}", mark, color, words)
    display({"text/plain": text, "text/html": card}, raw=True)


def examine(exercise: Exercise, answer: Answer) -> str:
    """Run the cases of an exercise and its further examination. Return what is wrong in the first that fails, "" if none does."""
    if not callable(answer):
        asked = f'check("{exercise.id}", {exercise.name})'
        return f"expected the function itself, found {shown(answer)}. Call `{asked}`, without calling your function."
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            called = _guarded(exercise, answer)
            for case in exercise.cases:
                _run(exercise, case, called)
            if exercise.examine:
                exercise.examine(called)
        except NotYet as problem:
            return " ".join(str(problem).split())
        except Exception as error:  # a result of a kind that the examination does not know
            said = f"the result of `{exercise.name}` could not be examined ({type(error).__name__}: {_short(error)})."
            return f"{said} Compare its type and shape with the task. {exercise.hint}"
    return ""


def _guarded(exercise: Exercise, answer: Answer) -> Callable[..., Any]:
    """The answer with its failures in words: it raises `NotYet` if the answer raises, or returns nothing."""

    def call(*arguments: Any, **keywords: Any) -> Any:
        try:
            result = answer(*arguments, **keywords)
        except NotImplementedError:
            result = None
        except Exception as error:
            raise NotYet(_explained(exercise, answer, error)) from error
        if result is None:
            raise NotYet(f"`{exercise.name}` still returns nothing. Replace `...` with your code, and end it with `return`.")
        return result

    return call


def _explained(exercise: Exercise, answer: Answer, error: Exception) -> str:
    """What an answer raised, in which of its lines, and the likely cause."""
    code = getattr(answer, "__code__", None)
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if code and frame.filename == code.co_filename and frame.lineno]
    if code and not own and isinstance(error, TypeError):
        return f"`{exercise.name}` cannot be called: {_short(error)}. Expected `def {exercise.call}`; keep the parameters of the cell."
    line = linecache.getline(own[-1].filename, own[-1].lineno or 0).strip() if own else ""
    where = f" in the line `{line}`" if line else ""
    said = f"`{exercise.name}` raised {type(error).__name__}{where}: {_short(error) or 'no text'}."
    return f"{said} {_cause(exercise, error)}".strip()


def _short(error: Exception) -> str:
    """The text of an error in one line without its last dot, and not all of a very long one."""
    text = " ".join(str(error).split()).rstrip(".")
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _cause(exercise: Exercise, error: Exception) -> str:
    text = str(error)
    if isinstance(error, NameError) and "'___'" in text:
        return "Fill this gap of the skeleton."
    if "read-only" in text:
        return "The function changes its input, which belongs to the caller: change a copy, `array.copy()`."
    if "'NoneType'" in text:
        return "An earlier call returned None, which is how TensorRT reports a failure: check the value, and read the log."
    if "truth value of an array" in text:
        return "`if`, `and` and `or` need one value: use `np.where` or `&`, or reduce the array with `.all()` or `.any()`."
    if "broadcast" in text:
        return "The shapes do not fit: print `.shape` of both arrays."
    return next((words for kind, words in _CAUSES.items() if isinstance(error, kind)), exercise.hint)


def _run(exercise: Exercise, case: Case, called: Callable[..., Any]) -> None:
    """Make the call of a case.

    Raises:
        NotYet: the result is not the expected one.
    """
    for argument in case.arguments:
        if isinstance(argument, np.ndarray):
            argument.flags.writeable = False
    found = called(*case.arguments)
    if same(found, case.expected, case.tolerance):
        return
    call = case.shown or f"{exercise.name}({', '.join(map(shown, case.arguments))})"
    explained = (words for words, returned in case.mistakes.items() if same(found, returned, case.tolerance))
    hint = next(explained, exercise.hint)
    raise NotYet(f"`{call}` returned {shown(found)}, expected {shown(case.expected)}. {hint}")
