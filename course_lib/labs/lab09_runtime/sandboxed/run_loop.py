"""The process that runs a learner's ``serving_loop.py`` on the stand-in: requests in, answers and the trace of the device out.

Nothing that it sends is trusted: the judge replays the trace on a device of its own.
"""

from __future__ import annotations

import base64
import gc
import resource
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from course_lib import standin
from course_lib.labs.framework.sandboxed import learner_code
from course_lib.labs.framework.sandboxed.learner_code import decoded, described, failure, loaded
from course_lib.labs.lab09_runtime.network import VERSION
from course_lib.standin import cuda_driver, gpu
from course_lib.standin.trace import FIELDS, as_json

FILE, FUNCTION = "serving_loop.py", "serve"
MEMORY = 16 << 20  # bytes of the device
MOST_DATA = 512 << 20  # bytes that the loop may add to the memory of its process, which also holds the device
ASKED = "asked"
ROWS: Mapping[str, tuple[str, ...]] = {
    **FIELDS,
    ASKED: ("number",),
}  # the loop asks its iterator for the request of this number
MOST_ROWS = 4000  # of a trace; a loop that never ends must not fill the memory


def served(request: dict[str, Any]) -> dict[str, Any]:
    """For each scene the answers, the error that `serve` raised, and the trace; or the error of the whole file.

    Args:
        request: ``source``, the text of the file, ``plan`` in base64, and ``scenes``: each with ``requests``, arrays as `encoded`, and
            ``breaks_off``.
    """
    with standin.installed(VERSION):
        cuda_driver.Context().push()
        try:
            module = loaded(request["source"], FILE)
        except BaseException as error:  # whatever a learner's code raises, SystemExit included, is an answer
            return failure(error, FILE)
        if not callable(getattr(module, FUNCTION, None)):
            return {"error": f"it does not define the function {FUNCTION}(plan, requests)"}
        plan = base64.b64decode(request["plan"])
        return {"scenes": [_scene(module, plan, scene) for scene in request["scenes"]]}


def encoded(array: np.ndarray) -> dict[str, Any]:
    """A float32 array as plain JSON values."""
    return learner_code.encoded(np.asarray(array, np.float32))


def _scene(module: types.ModuleType, plan: bytes, scene: dict[str, Any]) -> dict[str, Any]:
    rows: list[gpu.Row] = []
    gpu.reset(total_memory=MEMORY, trace=rows)
    found: dict[str, Any] = {"answers": None, "error": "", "kind": "", "empty": False}
    answers: Any = None
    kept: BaseException | None = None  # as a service keeps an error: its traceback holds the variables of `serve`
    try:
        answers = getattr(module, FUNCTION)(plan, _requests(scene, rows))
    except BaseException as error:
        kept = error
    gc.collect()
    found["rows"] = as_json(rows[:MOST_ROWS])
    if kept is None:
        found |= _answers(answers)
    else:
        found |= failure(kept, FILE) | {"kind": type(kept).__name__}
    return found


def _requests(scene: dict[str, Any], rows: list[gpu.Row]) -> Iterator[np.ndarray]:
    for number, values in enumerate(scene["requests"]):
        rows.append([ASKED, number])
        yield decoded(values)
    rows.append([ASKED, len(scene["requests"])])
    if scene["breaks_off"]:
        raise ConnectionError("the client closed the connection")


def _answers(answers: Any) -> dict[str, Any]:
    try:
        return {"answers": [None if answer is None else encoded(np.asarray(answer, np.float32)) for answer in answers]}
    except Exception as error:
        return {"error": f"it must return a list of arrays and None: {described(error, FILE)}", "kind": "TypeError"}


def main() -> None:
    """Answer one request. The process cannot raise its limit again."""
    limit = _data_bytes() + MOST_DATA
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    learner_code.run(served)


def _data_bytes() -> int:
    """What counts for RLIMIT_DATA now: it differs by the number of processors, for each of which numpy's library has a buffer."""
    rows = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines())
    return int(rows["VmData"].split()[0]) << 10


if __name__ == "__main__":
    main()
