"""The examination of a learner's ``packing.py`` and ``scales.py``: their functions run in a process of their own, on secret arrays."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from course_lib.engines.worker.parent import Launcher
from course_lib.errors import EngineError
from course_lib.labs.framework import learner_code
from course_lib.labs.framework.isolation import read_hostile, run_isolated, text_command
from course_lib.labs.framework.submission_files import read_text
from course_lib.labs.lab11_four_bits.sandboxed import call_functions
from course_lib.labs.lab11_four_bits.sandboxed.call_functions import MOST_BYTES, encoded

MAX_BYTES = 64 << 10  # of a file
TIME_LIMIT_S = 60.0  # for all calls together; the reference takes less than a second
_MAX_ANSWER = 16 << 20
_LONGEST = 200  # characters of a learner's text in a message


class Unwritten(str):
    """The error line of a function whose body is not written yet."""


Answer = np.ndarray | str  # the line of an error in place of an array
Calls = Mapping[str, Sequence[Sequence[Any]]]


def ask(source: Path, calls: Calls, launcher: Launcher | None) -> dict[str, list[Answer]]:
    """Call the functions of a file.

    Args:
        calls: by function, the arguments of each call: arrays, numbers, or tuples of numbers.

    Returns:
        The answers by function; a function that the file does not define is missing.

    Raises:
        EngineError: the file is not text, fails as a whole, took too long, or its process sent an invalid answer.
    """
    text = read_text(source, MAX_BYTES)
    asked = {function: [[_wire(one) for one in call] for call in several] for function, several in calls.items()}
    answer = run_isolated(
        text_command(learner_code, call_functions),  # its process does not see the course's files
        json.dumps({"file": source.name, "source": text, "calls": asked}).encode(),
        launcher=launcher,
        time_limit_s=TIME_LIMIT_S,
        max_bytes=_MAX_ANSWER,
    )
    return parsed(answer, {function: len(several) for function, several in asked.items()})


def parsed(answer: bytes, counts: Mapping[str, int]) -> dict[str, list[Answer]]:
    """The answer of a process that may be hostile, with `counts` calls of each function.

    Raises:
        EngineError: it does not have this form, or the file failed as a whole.
    """

    def read(values: Any) -> dict[str, list[Answer]]:
        if error := values.get("error"):
            raise EngineError(_line(error))
        found = {}
        for function, count in counts.items():
            if function in values:
                if not isinstance(values[function], list) or len(values[function]) != count:
                    raise ValueError(function)
                found[function] = [_decoded(row) for row in values[function]]
        return found

    return read_hostile(answer, read, "it did not return one array for each call")


def _wire(argument: Any) -> Any:
    if isinstance(argument, np.ndarray):
        return encoded(argument)
    return list(argument) if isinstance(argument, tuple) else argument


def _decoded(row: Mapping[str, Any]) -> Answer:
    if "error" in row:
        line = _line(row["error"])
        return Unwritten(line) if row.get("empty") else line
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


def undefined(file: str, function: str) -> str:
    """The message for a function that a file does not define."""
    return f"{file} defines no function {function}."
