"""Calls of a learner's functions: they run in a process of their own, on secret arrays, and what comes back is checked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from course_lib.engines.worker.parent import Launcher
from course_lib.labs.framework import learner_answers
from course_lib.labs.lab06_qat.sandboxed import call_qat

MAX_BYTES = 32 << 10  # of qat.py
TIME_LIMIT_S = 30.0  # of a process that does not train; the reference takes a second
TRAINING_LIMIT_S = 200.0  # only for code that hangs: the reference trains in 10 to 30 s
_MAX_ANSWER = 8 << 20
Arrays = dict[str, Any]  # arrays by name, and further dictionaries


def ask(source: Path, calls: Mapping[str, Any], launcher: Launcher | None) -> dict[str, list[Arrays | str]]:
    """The answers of a file's functions, see `learner_answers.ask`.

    Args:
        calls: by function, a list of what each call gets, see `call_qat.answers`. Arrays are numpy's.
    """
    return learner_answers.ask(
        call_qat,
        source,
        calls,
        parsed,
        launcher=launcher,
        time_limit_s=TRAINING_LIMIT_S if "train" in calls else TIME_LIMIT_S,
        max_bytes=MAX_BYTES,
        max_answer=_MAX_ANSWER,
        advice="the grader trains again, so a file does not need trained numbers",
    )


def parsed(answer: bytes, counts: Mapping[str, int]) -> dict[str, list[Arrays | str]]:
    """See `learner_answers.parsed`. A question to ``fake_quantize`` is a pair, with two answers."""
    counts = {function: count * (2 if function == "fake_quantize" else 1) for function, count in counts.items()}
    return learner_answers.parsed(answer, counts, _arrays, "it did not return arrays of the form that the tasks give")


def _arrays(row: Mapping[str, Any]) -> Arrays:
    found: Arrays = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            found[str(name)] = learner_answers.decoded(value) if "data" in value else _arrays(value)
        else:
            found[str(name)] = int(value)
    return found
