"""The process that runs a learner's ``serving_loop.py`` on the stand-in: requests in, answers and the trace of the device out.

Requests come one by one from the judge, when the loop asks for them, and with each question goes the trace up to then. So a loop
cannot know what comes next, or change the trace of what it did before. Nothing that this process sends is trusted: the judge replays
the trace on a device of its own.
"""

from __future__ import annotations

import base64
import gc
import json
import os
import resource
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
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
Ask = Callable[[dict[str, Any]], dict[str, Any]]  # sends a message to the judge, and returns its reply


def serve(begin: Mapping[str, Any], ask: Ask) -> None:
    """Run `serve` for each scene that the judge announces; all that is found goes to `ask`.

    Args:
        begin: ``source``, the text of the file, and ``plan`` in base64.
        ask: sends ``{}`` for the next scene, and the results: an ``error`` of the whole file, or of a scene what `_scene` returns.
    """
    with standin.installed(VERSION), _context():
        try:
            module = loaded(begin["source"], FILE)
        except BaseException as error:  # whatever a learner's code raises, SystemExit included, is an answer
            ask(failure(error, FILE))
            return
        if not callable(getattr(module, FUNCTION, None)):
            ask({"error": f"it does not define the function {FUNCTION}(plan, requests)"})
            return
        plan, more = base64.b64decode(begin["plan"]), ask({})
        while more:
            more = ask(_scene(module, plan, ask))


@contextmanager
def _context() -> Iterator[None]:
    """A context on this thread, as pycuda's ``autoinit`` makes one."""
    cuda_driver.Context().push()
    try:
        yield
    finally:
        with suppress(cuda_driver.Error):  # the loop may have taken it away
            cuda_driver.Context.pop()


def encoded(array: np.ndarray) -> dict[str, Any]:
    """A float32 array as plain JSON values."""
    return learner_code.encoded(np.asarray(array, np.float32))


class _Trace:
    """The rows that the device writes, and what was sent of them."""

    def __init__(self) -> None:
        self.rows: list[gpu.Row] = []
        self._sent: list[Any] = []

    def new(self) -> list[Any]:
        """The rows since the last question."""
        rows = as_json(self.rows[len(self._sent) : len(self._sent) + MOST_ROWS])
        self._sent += rows
        return rows

    def late(self) -> list[list[Any]]:
        """Number, ``data`` and ``changed`` of copies to the device that ran after their row was sent."""
        pairs = enumerate(zip(self._sent, as_json(self.rows[: len(self._sent)]), strict=True))
        return [[number, *row[-2:]] for number, (sent, row) in pairs if row[:1] == ["in"] and row != sent]


def _scene(module: types.ModuleType, plan: bytes, ask: Ask) -> dict[str, Any]:
    """The answers, the error that `serve` raised, and the end of the trace, after the rows that went with its questions."""
    trace = _Trace()
    gpu.reset(total_memory=MEMORY, trace=trace.rows)
    found: dict[str, Any] = {"answers": None, "error": "", "raised": "", "empty": False}
    answers: Any = None
    kept: BaseException | None = None  # as a service keeps an error: its traceback holds the variables of `serve`
    try:
        answers = getattr(module, FUNCTION)(plan, _requests(ask, trace))
    except BaseException as error:
        kept = error
    gc.collect()
    found |= {"rows": trace.new(), "late": trace.late()}
    if kept is None:
        found |= _answers(answers)
    else:
        found |= failure(kept, FILE)
    return found


def _requests(ask: Ask, trace: _Trace) -> Iterator[np.ndarray]:
    while "request" in (reply := ask({"asked": True, "rows": trace.new()})):
        yield decoded(reply["request"])
    if reply["breaks_off"]:
        raise ConnectionError("the client closed the connection")


def _answers(answers: Any) -> dict[str, Any]:
    try:
        return {"answers": [None if answer is None else encoded(np.asarray(answer, np.float32)) for answer in answers]}
    except Exception as error:
        return {"error": f"it must return a list of arrays and None: {described(error, FILE)}", "raised": "TypeError"}


def main() -> None:
    """Talk with the judge on standard input and output; what the learner's code prints is discarded. The limit cannot be raised again."""
    limit = _data_bytes() + MOST_DATA
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    questions, replies = os.fdopen(os.dup(1), "w"), os.fdopen(os.dup(0))
    with open(os.devnull, "r+b") as nowhere:
        for stream in (0, 1):
            os.dup2(nowhere.fileno(), stream)

    def ask(message: dict[str, Any]) -> dict[str, Any]:
        questions.write(json.dumps(message) + "\n")
        questions.flush()
        return json.loads(replies.readline() or "{}")

    serve(json.loads(replies.readline()), ask)


def _data_bytes() -> int:
    """What counts for RLIMIT_DATA now: it differs by the number of processors, for each of which numpy's library has a buffer."""
    rows = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines())
    return int(rows["VmData"].split()[0]) << 10


if __name__ == "__main__":
    main()
