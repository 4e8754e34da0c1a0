"""The examination of a learner's ``packing.py`` and ``scales.py``: each function runs in its own process, on secret arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from course_lib.engines.worker.parent import Launcher
from course_lib.labs.framework import learner_answers
from course_lib.labs.lab14_four_bits.sandboxed import call_functions

MAX_BYTES = 64 << 10  # of a file
TIME_LIMIT_S = 60.0  # for all calls of a function; the reference takes less than a second
_MAX_ANSWER = 16 << 20

Answer = np.ndarray | str  # the line of an error in place of an array
Calls = Mapping[str, Sequence[Sequence[Any]]]


def ask(source: Path, calls: Calls, launcher: Launcher | None) -> dict[str, list[Answer]]:
    """The answers of a file's functions, see `learner_answers.ask`. Each function is asked in its own process.

    Args:
        calls: by function, the arguments of each call: arrays, numbers, or tuples of numbers.
    """
    found: dict[str, list[Answer]] = {}
    for function, several in calls.items():
        found |= learner_answers.ask(
            call_functions,
            source,
            {function: several},
            parsed,
            launcher=launcher,
            time_limit_s=TIME_LIMIT_S,
            max_bytes=MAX_BYTES,
            max_answer=_MAX_ANSWER,
        )
    return found


def parsed(answer: bytes, counts: Mapping[str, int]) -> dict[str, list[Answer]]:
    """See `learner_answers.parsed`."""
    return learner_answers.parsed(answer, counts, learner_answers.decoded, "it did not return one array for each call")


def undefined(file: str, function: str) -> str:
    """The message for a function that a file does not define."""
    return f"{file} defines no function {function}."
