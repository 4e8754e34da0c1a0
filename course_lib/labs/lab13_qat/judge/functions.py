"""Calls of a learner's functions: they run in a process of their own, on secret arrays, and what comes back is checked."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from course_lib.engines.worker.parent import Launcher
from course_lib.errors import EngineError
from course_lib.labs.framework.isolation import read_hostile, run_isolated
from course_lib.labs.framework.submission_files import read_text
from course_lib.labs.lab13_qat.sandboxed import call_qat
from course_lib.labs.lab13_qat.sandboxed.call_qat import MOST_BYTES, sent

MAX_BYTES = 32 << 10  # of qat.py
TIME_LIMIT_S = 200.0  # only for code that hangs: the reference trains in 10 to 30 s
_MAX_ANSWER = 8 << 20
_LONGEST = 200  # characters of a learner's text in a message
Arrays = dict[str, Any]  # arrays by name, and further dictionaries


class Unwritten(str):
    """The error line of a function whose body is not written yet."""


def ask(source: Path, calls: Mapping[str, Any], launcher: Launcher | None) -> dict[str, list[Arrays | str]]:
    """Call the functions of a file.

    Args:
        calls: by function, a list of what each call gets, see `call_qat.answers`. Arrays are numpy's.

    Returns:
        By function, the arrays of each answer, or the line of an error. A function that the file does not define is missing.

    Raises:
        EngineError: the file is not text, fails as a whole, took too long, or its process sent an invalid answer.
    """
    text = read_text(source, MAX_BYTES, "the grader trains again, so a file does not need trained numbers")
    program = Path(call_qat.__file__).read_text(encoding="utf-8")  # as text: its process does not see the course's files
    answer = run_isolated(
        [sys.executable, "-I", "-c", program],
        json.dumps({"source": text, **calls}, default=sent).encode(),
        launcher=launcher,
        time_limit_s=TIME_LIMIT_S,
        max_bytes=_MAX_ANSWER,
    )
    return parsed(answer, {function: len(several) for function, several in calls.items()})


def parsed(answer: bytes, counts: Mapping[str, int]) -> dict[str, list[Arrays | str]]:
    """The answer of a process that may be hostile, with `counts` calls of each function.

    Raises:
        EngineError: it does not have this form, or the file failed as a whole.
    """

    def read(values: Any) -> dict[str, list[Arrays | str]]:
        if error := values.get("error"):
            raise EngineError(_line(error))
        found: dict[str, list[Arrays | str]] = {}
        for function, count in counts.items():
            if function in values:
                if not isinstance(values[function], list) or len(values[function]) != count:
                    raise ValueError(function)
                found[function] = [_error(row) if "error" in row else _arrays(row) for row in values[function]]
        return found

    return read_hostile(answer, read, "it did not return arrays of the form that the tasks give")


def _error(row: Mapping[str, Any]) -> str:
    line = _line(row["error"])
    return Unwritten(line) if row.get("empty") else line


def _arrays(row: Mapping[str, Any]) -> Arrays:
    found: Arrays = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            found[str(name)] = _array(value) if "data" in value else _arrays(value)
        else:
            found[str(name)] = int(value)
    return found


def _array(row: Mapping[str, Any]) -> np.ndarray:
    dtype = np.dtype(str(row["dtype"])[:8])
    data = base64.b64decode(row["data"], validate=True)
    if dtype.kind not in "iuf" or len(data) > MOST_BYTES:
        raise ValueError(dtype)
    shape = [int(size) for size in row["shape"]]
    if any(size < 0 for size in shape):
        raise ValueError(shape)
    return np.frombuffer(data, dtype).reshape(shape)


def _line(text: object) -> str:
    return " ".join(str(text).split())[:_LONGEST]
