"""The judge's side of `learner_code`: questions to a learner's functions, and the answers of a process that may be hostile."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import numpy as np

from course_lib._util.plain_text import plain
from course_lib.engines.worker.parent import Launcher
from course_lib.errors import EngineError
from course_lib.labs.framework.isolation import read_hostile, run_isolated, text_command
from course_lib.labs.framework.sandboxed import learner_code
from course_lib.labs.framework.submission_files import read_text

_T = TypeVar("_T")
_LONGEST = 200  # characters of a learner's text in a message


class Unwritten(str):
    """The error line of a function whose body is not written yet."""


def ask(
    program: ModuleType,
    source: Path,
    questions: Mapping[str, Sequence[Any]],
    read: Callable[[bytes, dict[str, int]], _T],
    *,
    launcher: Launcher | None,
    time_limit_s: float,
    max_bytes: int,
    max_answer: int,
    advice: str = "",
) -> _T:
    """What `read` makes of the answer of a process that runs a learner's file.

    Args:
        program: a lab's module whose ``main`` calls `learner_code.run`. Its process does not see the course's files.
        questions: by function, as plain values and numpy's arrays. The learner's code can read all of them before it answers the
            first one. So none may contain what another one asks for: ask such questions in separate processes.
        read: see `parsed`; it gets the answer and the number of questions to each function.
        max_bytes: of the file; `advice` says what to do about a longer one.
        max_answer: bytes of the answer.

    Raises:
        EngineError: the file is not text, fails as a whole or took too long, or its process sent an invalid answer.
    """
    text = read_text(source, max_bytes, advice)
    answer = run_isolated(
        text_command(learner_code, program),
        json.dumps({"file": source.name, "source": text, "questions": questions}, default=learner_code.encoded).encode(),
        launcher=launcher,
        time_limit_s=time_limit_s,
        max_bytes=max_answer,
    )
    return read(answer, {function: len(several) for function, several in questions.items()})


def parsed(answer: bytes, counts: Mapping[str, int], read: Callable[[Any], _T], complaint: str) -> dict[str, list[_T | str]]:
    """By function, what `read` makes of each answer, or the line of an error. A function that the file does not define is missing.

    Args:
        counts: how many questions each function was asked.
        read: may fail with any error.
        complaint: the message about an answer of another form.

    Raises:
        EngineError: it has another form, or the file failed as a whole.
    """

    def one(value: Any) -> _T | str:
        if isinstance(value, Mapping) and "error" in value:
            return (Unwritten if value.get("empty") else str)(plain(value["error"], _LONGEST))
        return read(value)

    def whole(values: Any) -> dict[str, list[_T | str]]:
        if error := values.get("error"):
            raise EngineError(plain(error, _LONGEST))
        found = {function: values[function] for function in counts if function in values}
        if not all(isinstance(several, list) and len(several) == counts[function] for function, several in found.items()):
            raise ValueError("not one answer for each question")
        return {function: [one(value) for value in several] for function, several in found.items()}

    return read_hostile(answer, whole, complaint)


def in_any_order(arrays: Sequence[np.ndarray], rng: np.random.Generator, *, backward: bool = True) -> list[np.ndarray]:
    """The same arrays in orders in memory that are drawn. `learner_code.encoded_with_strides` writes them into a question.

    Each of four neighbors has another kind of order: C order, Fortran order, and both with gaps, or from the end to the start. So a
    few arrays with several axes find code that takes the elements in the order of the memory.

    Args:
        backward: False where the learner's library has no negative strides, such as torch.
    """
    kinds = [(transposed, dense) for transposed in (False, True) for dense in (False, True)]
    drawn = [kinds[index] for _ in range(0, len(arrays), len(kinds)) for index in rng.permutation(len(kinds))]
    return [_placed(*one, rng, backward) for one in zip(arrays, drawn, strict=False)]


def _placed(array: np.ndarray, kind: tuple[bool, bool], rng: np.random.Generator, backward: bool) -> np.ndarray:
    transposed, dense = kind
    order = np.arange(array.ndim)[:: -1 if transposed else 1]
    steps = np.ones(array.ndim, int)
    if not dense:
        steps = rng.integers(1, 4, array.ndim) * rng.choice((1, -1 if backward else 1), array.ndim)
    memory = np.zeros([array.shape[axis] * abs(steps[axis]) for axis in order], array.dtype)
    taken = (..., *(slice(None, None, step) for step in steps))
    view = memory.transpose(np.argsort(order))[taken]
    view[...] = array
    return view


def decoded(values: Mapping[str, Any], kinds: str = "iuf") -> np.ndarray:
    """The array of numbers in an answer that may be hostile, written by `learner_code.encoded`. Any error means that there is none.

    Args:
        kinds: of numpy's types, as in ``numpy.dtype.kind``.
    """
    dtype = np.dtype(str(values["dtype"])[:8])
    data = base64.b64decode(values["data"], validate=True)
    shape = [int(size) for size in values["shape"]]
    if dtype.kind not in kinds or len(data) > learner_code.MOST_BYTES or any(size < 0 for size in shape):
        raise ValueError("not an array of numbers, or too large")
    return np.frombuffer(data, dtype).reshape(shape)
