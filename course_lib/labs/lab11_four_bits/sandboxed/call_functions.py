"""The process that calls a learner's functions: source text and arrays in, arrays out.

It is started as text, with ``python -I -c``, in a sandbox without the course. It has only numpy and Python's own modules.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

PACKING, SCALES = "packing.py", "scales.py"
FUNCTIONS = {PACKING: ("pack", "unpack"), SCALES: ("search",)}  # that the grader calls, by file
MOST_BYTES = 1 << 20  # of one answer
_PERMITTED = {*sys.stdlib_module_names, "numpy"}


class NumpyOnly:
    """An import hook that rejects other packages, so that the functions are the learner's own work."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Reject `name`, or leave it to Python's own finders."""
        if name.partition(".")[0] not in _PERMITTED:
            raise ImportError(f"the file may import numpy and Python's own modules, not {name!r}")


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
        return {"error": said(error, file)}
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
        return {"error": said(error, file), "empty": isinstance(error, NotImplementedError)}


def _decoded(argument: Any) -> Any:
    if not isinstance(argument, dict):
        return tuple(argument) if isinstance(argument, list) else argument
    data = base64.b64decode(argument["data"])
    return np.frombuffer(data, argument["dtype"]).reshape(argument["shape"]).copy()


def said(error: BaseException, file: str) -> str:
    """One line with the error and its place in the learner's file."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    where = f"line {frames[-1].lineno}: " if frames else ""
    return " ".join(f"{where}{type(error).__name__} {error}".split())[:300]


def main() -> None:
    """Read one request from standard input and write its answer; output of the learner's code is discarded."""
    reply = os.dup(1)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    request = json.load(sys.stdin)
    sys.meta_path.insert(0, NumpyOnly())
    with os.fdopen(reply, "w") as out:
        json.dump(answers(request), out)


if __name__ == "__main__":
    main()
