"""The process that runs a learner's ``serving_loop.py`` on the stand-in: requests in, answers and the trace of the device out.

Nothing that it sends is trusted: the judge replays the trace on a device of its own.
"""

from __future__ import annotations

import base64
import gc
import json
import os
import sys
import traceback
import types
from collections.abc import Iterator
from typing import Any

import numpy as np

from course_lib import standin
from course_lib.labs.lab12_runtime.network import VERSION
from course_lib.standin import cuda_driver, gpu
from course_lib.standin.trace import as_json

FILE, FUNCTION = "serving_loop.py", "serve"
MEMORY = 16 << 20  # bytes of the device
MOST_ROWS = 4000  # of a trace; a loop that never ends must not fill the memory


def served(request: dict[str, Any]) -> dict[str, Any]:
    """For each scene the answers, the error that `serve` raised, and the trace; or the error of the whole file.

    Args:
        request: ``source``, the text of the file, ``plan`` in base64, and ``scenes``: each with ``requests``, arrays as `encoded`, and
            ``breaks_off``.
    """
    with standin.installed(VERSION):
        module = sys.modules["serving_loop"] = types.ModuleType("serving_loop")  # dataclasses look their module up
        cuda_driver.Context().push()
        try:
            exec(compile(request["source"], FILE, "exec"), module.__dict__)
        except BaseException as error:  # whatever a learner's code raises, SystemExit included, is an answer
            return {"error": described(error), "empty": isinstance(error, NotImplementedError)}
        if not callable(getattr(module, FUNCTION, None)):
            return {"error": f"it does not define the function {FUNCTION}(plan, requests)"}
        plan = base64.b64decode(request["plan"])
        return {"scenes": [_scene(module, plan, scene) for scene in request["scenes"]]}


def encoded(array: np.ndarray) -> dict[str, Any]:
    """A float32 array as plain JSON values."""
    return {"shape": list(array.shape), "data": base64.b64encode(np.ascontiguousarray(array, np.float32).tobytes()).decode()}


def decoded(values: dict[str, Any]) -> np.ndarray:
    """The array that `encoded` wrote."""
    return np.frombuffer(base64.b64decode(values["data"]), np.float32).reshape(values["shape"]).copy()


def _scene(module: types.ModuleType, plan: bytes, scene: dict[str, Any]) -> dict[str, Any]:
    rows: list[gpu.Row] = []
    gpu.reset(total_memory=MEMORY, trace=rows)
    found: dict[str, Any] = {"answers": None, "error": "", "kind": "", "empty": False}
    answers: Any = None
    kept: BaseException | None = None  # as a service keeps an error: its traceback holds the variables of `serve`
    try:
        answers = getattr(module, FUNCTION)(plan, _requests(scene))
    except BaseException as error:
        kept = error
    gc.collect()
    found["rows"] = as_json(rows[:MOST_ROWS])
    if kept is None:
        found |= _answers(answers)
    else:
        found |= {"error": described(kept), "kind": type(kept).__name__, "empty": isinstance(kept, NotImplementedError)}
    return found


def _requests(scene: dict[str, Any]) -> Iterator[np.ndarray]:
    for values in scene["requests"]:
        yield decoded(values)
    if scene["breaks_off"]:
        raise ConnectionError("the client closed the connection")


def _answers(answers: Any) -> dict[str, Any]:
    try:
        return {"answers": [None if answer is None else encoded(np.asarray(answer, np.float32)) for answer in answers]}
    except Exception as error:
        return {"error": f"it must return a list of arrays and None: {described(error)}", "kind": "TypeError"}


def described(error: BaseException) -> str:
    """One line with the error and its place in the learner's file."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == FILE]
    where = f"line {frames[-1].lineno}: " if frames else ""
    return " ".join(f"{where}{type(error).__name__} {error}".split())[:300]


def main() -> None:
    """Read one request from standard input and write its answer; output of the learner's code is discarded."""
    reply = os.dup(1)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    request = json.load(sys.stdin)
    with os.fdopen(reply, "w") as out:
        json.dump(served(request), out)


if __name__ == "__main__":
    main()
