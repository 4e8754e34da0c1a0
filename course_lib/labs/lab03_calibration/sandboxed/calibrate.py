"""The process that runs a learner's calibrator: source text and histograms in, thresholds out.

It is started as text, with ``python -I -c``, in a sandbox without the course. It has only numpy and Python's own modules.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

METHODS = ("percentile", "entropy")
FILE = "calibrator.py"
_PERMITTED = {*sys.stdlib_module_names, "numpy"}


class NumpyOnly:
    """An import hook that rejects other packages, so that the calibrator is the learner's own work."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Reject `name`, or leave it to Python's own finders."""
        if name.partition(".")[0] not in _PERMITTED:
            raise ImportError(f"{FILE} may import numpy and Python's own modules, not {name!r}")


def answers(request: dict[str, Any]) -> dict[str, Any]:
    """``{"percentile": [...]}`` with a threshold, or ``{"error": line, "empty": bool}``, for each question to a function that the source
    defines.

    Args:
        request: ``source``, the text of calibrator.py, and ``questions``: a list by method, each with ``counts``, ``bin_width``
            and, for percentile, ``percent``.
    """
    names: dict[str, Any] = {"__name__": "calibrator"}
    try:
        exec(compile(request["source"], FILE, "exec"), names)
    except BaseException as error:  # whatever a learner's code raises, SystemExit included, is an answer
        return {"error": said(error)}
    defined = [method for method in METHODS if callable(names.get(method))]
    return {method: [_answer(names[method], question) for question in request["questions"][method]] for method in defined}


def _answer(function: Callable[..., Any], question: dict[str, Any]) -> float | dict[str, Any]:
    try:
        return float(function(np.array(question.pop("counts"), np.int64), **question))
    except BaseException as error:
        return {"error": said(error), "empty": isinstance(error, NotImplementedError)}


def said(error: BaseException) -> str:
    """One line with the error and its place in the learner's file."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == FILE]
    where = f"{FILE}, line {frames[-1].lineno}: " if frames else f"{FILE}: "
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
