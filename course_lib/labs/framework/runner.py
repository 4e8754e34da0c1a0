"""Run a learner's functions on cases, in a process of their own, and compare what they return. The process may be hostile."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from course_lib._util.plain_text import plain
from course_lib.errors import EngineError
from course_lib.exercises.comparing import same, shown
from course_lib.exercises.exercise import Case
from course_lib.labs.framework.criteria import ALL, Criterion, all_right
from course_lib.labs.framework.examination import Examiner
from course_lib.labs.framework.isolation import read_hostile, run_isolated, text_command
from course_lib.labs.framework.sandboxed import learner_code
from course_lib.labs.framework.submission_files import read_text

MAX_BYTES = 64 << 10  # of a learner's file
_MOST_ANSWERED = 32 << 20  # bytes of all answers
_LONGEST = 200  # characters of a learner's text in a message


@dataclass(frozen=True)
class Failed:
    """A call without a result.

    Attributes:
        line: the error, or that there is no such function.
        empty: whether the body is not written yet.
    """

    line: str
    empty: bool = False

    def __str__(self) -> str:
        return "not written yet" if self.empty else self.line


def call(
    file: Path,
    calls: Mapping[str, Sequence[Sequence[Any]]],
    examiner: Examiner,
    *,
    program: ModuleType = learner_code,
    time_limit_s: float = 30.0,
) -> dict[str, list[Any]]:
    """By function, the result of each call, or `Failed`. All calls are made in one process, in order.

    The learner's code can read all arguments before it answers the first call. If one call tells the answer of another one, make
    them in two processes.

    Args:
        file: the learner's file, a module.
        calls: by function, the arguments of each call, by position: numbers, texts, lists, dictionaries and arrays. A tuple arrives
            as a list.
        program: a module whose ``main`` reads the request and answers in its own way, with `learner_code`. It sees numpy only.

    Raises:
        EngineError: the file is missing, is not text or fails as a whole; or its process is late or answers in another form.
    """
    request = {"file": file.name, "source": read_text(file, MAX_BYTES), "questions": learner_code.plain_values(calls)}
    modules = (learner_code,) if program is learner_code else (learner_code, program)
    answer = run_isolated(
        text_command(*modules),
        json.dumps(request).encode(),
        launcher=examiner.bare_launcher or examiner.launcher,
        time_limit_s=time_limit_s,
        max_bytes=_MOST_ANSWERED,
    )
    counts = {function: len(several) for function, several in calls.items()}
    return read_hostile(
        answer, lambda values: _read(values, counts, file.name), "its process did not answer as the runner does"
    )


def _read(values: Any, counts: Mapping[str, int], file: str) -> dict[str, list[Any]]:
    if "error" in values:
        raise EngineError(f"{file}: {plain(values['error'], _LONGEST)}")
    results = {}
    for function, count in counts.items():
        several = values.get(function, [{"error": f"{file} defines no function {function}"}] * count)
        if len(several) != count:
            raise ValueError("not one answer for each call")
        results[function] = [_result(one) for one in several]
    return results


def _result(value: Any) -> Any:
    if isinstance(value, Mapping):
        if "error" in value:
            return Failed(plain(value["error"], _LONGEST), value.get("empty") is True)
        if "dtype" in value:
            return decoded(value, "iufb")
        return {str(key): _result(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_result(one) for one in value]
    return value  # a text as it is: a key that is compared must not be cut


def case_criterion(
    name: str, cases: Sequence[Case], results: Sequence[Any], needed_for: str = ALL, *, hint: str = ""
) -> Criterion:
    """Whether every case has its expected result. Each wrong one is listed with the words of its mistake, if it is a usual one.

    Args:
        cases: whose `Case.shown` names them in a message.
        results: of `call`, one for each case.
    """
    wrong = [line for case, result in zip(cases, results, strict=True) if (line := _complaint(case, result))]
    return all_right(name, wrong, len(cases), needed_for, hint=hint)


def _complaint(case: Case, result: Any) -> str:
    name = case.shown or shown(case.arguments)
    if isinstance(result, Failed):
        return f"{name}: {result}"
    if same(result, case.expected, case.tolerance):
        return ""
    usual = (words for words, mistaken in case.mistakes.items() if same(result, mistaken, case.tolerance))
    return f"{name}: {next(usual, f'found {shown(result)}')}"


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
