"""The process that calls a learner's functions: source text and arrays in, arrays out.

It is started as text, by `isolation.text_command`, in a sandbox without the course. It has only numpy and Python's own modules.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from course_lib.labs.framework.learner_code import NumpyOnly, described

PACKING, SCALES = "packing.py", "scales.py"
FUNCTIONS = {PACKING: ("pack", "unpack"), SCALES: ("search",)}  # that the grader calls, by file
MOST_BYTES = 1 << 20  # of one answer


def answers(request: dict[str, Any]) -> dict[str, Any]:
    """For each call of each function that the source defines, an array as `encoded`, or ``{"error": line, "empty": bool}``.

    Args:
        request: ``file`` and ``source``, its text, and ``calls``: by function, a list of argument lists. An argument is a plain value
            or an array as `encoded`.
    """
    file, calls = request["file"], request["calls"]
    names: dict[str, Any] = {"__name__": file.removesuffix(".py")}
    try:
        exec(compile(request["source"], file, "exec"), names)
    except BaseException as error:  # whatever a learner's code raises, SystemExit included, is an answer
        return {"error": described(error, file)}
    defined = [function for function in calls if callable(names.get(function))]
    return {function: [_answer(names[function], call, file) for call in calls[function]] for function in defined}


def encoded(array: np.ndarray) -> dict[str, Any]:
    """An array as plain JSON values."""
    data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
    return {"dtype": array.dtype.str, "shape": list(array.shape), "data": data}


def _answer(function: Callable[..., Any], call: list[Any], file: str) -> dict[str, Any]:
    try:
        found = function(*map(_decoded, call))
        if isinstance(found, (bytes, bytearray)):
            found = np.frombuffer(found, np.uint8)
        found = np.asarray(found)
        if found.dtype.kind not in "iuf" or found.nbytes > MOST_BYTES:
            raise TypeError(
                f"the answer is not an array of numbers, or it is too large: found {found.dtype} of shape {found.shape}"
            )
        return encoded(found)
    except BaseException as error:
        return {"error": described(error, file), "empty": isinstance(error, NotImplementedError)}


def _decoded(argument: Any) -> Any:
    if not isinstance(argument, dict):
        return tuple(argument) if isinstance(argument, list) else argument
    data = base64.b64decode(argument["data"])
    return np.frombuffer(data, argument["dtype"]).reshape(argument["shape"]).copy()


def main() -> None:
    """Read one request from standard input and write its answer; output of the learner's code is discarded."""
    reply = os.dup(1)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    request = json.load(sys.stdin)
    sys.meta_path.insert(0, NumpyOnly())
    with os.fdopen(reply, "w") as out:
        json.dump(answers(request), out)
