"""A server of lab 12 in the notebook's own process. The grader's engines have the same names and errors, in processes of their own."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import tempfile
import threading
import time
import traceback
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np

from course_lib.engines import Engine, Plan, build, default_runner, load
from course_lib.engines.cuda.driver import capability
from course_lib.engines.registry import availability
from course_lib.errors import BuildError, CourseError, EngineError, PlanError
from course_lib.labs.lab12_serving.network import FEATURES, INPUT
from course_lib.labs.lab12_serving.sandboxed.server_host import FILES, arrays_of, one_thread, server_class
from course_lib.labs.lab12_serving.sandboxed.server_process import ANSWER_S, READY_S
from course_lib.labs.lab12_serving.sandboxed.stage import misshapen
from course_lib.recipe import Recipe


class Engines:
    """What a server receives: `build`, `load`, and what plans depend on.

    Attributes:
        version: of the runtime.
        device: compute capability of the GPU, such as ``"sm90"``, or ``"cpu"``.
    """

    BuildError, PlanError, EngineError = BuildError, PlanError, EngineError

    def __init__(self) -> None:
        self._backend = default_runner()
        self.version, self.device = availability(self._backend).version, capability() or "cpu"
        self._plans: dict[tuple[str, str], bytes] = {}

    def build(self, model: bytes, recipe: Mapping[str, Any]) -> bytes:
        """Compile a serialized ONNX model. The same model and recipe are compiled once.

        Raises:
            BuildError: the compiler failed.
        """
        wanted = Recipe(**recipe)
        key = hashlib.sha256(model).hexdigest(), wanted.dumps()
        if key not in self._plans:
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder, "model.onnx")
                file.write_bytes(model)
                plan = build(file, wanted, backend=self._backend)
            self._plans[key] = json.dumps(plan.to_json()).encode() + b"\n" + plan.data
        return self._plans[key]

    def load(self, plan: bytes) -> Context:
        """An engine with one execution context.

        Raises:
            PlanError: the data is not a plan, or belongs to another version or device.
        """
        label, _, data = plan.partition(b"\n")
        try:
            found = Plan.from_json(json.loads(label), data)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise PlanError("the data is not a plan") from None
        return Context(load(found))


class Context:
    """An engine's execution context. One thread at a time may use it."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._one = engine, threading.Lock()

    def infer(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs by name for inputs by name.

        Raises:
            EngineError: the inference failed, or another thread uses this context.
        """
        with one_thread(self._one, EngineError):
            return self._engine.infer(dict(feeds))


def start(folder: Path | str = ".") -> Any:
    """A ``Server`` of the folder's ``store.py`` and ``server.py``, for its ``scorer.onnx``, with an empty cache and `Engines`.

    Raises:
        CourseError: the folder has no ``scorer.onnx`` or ``recipe.toml``, or the server is not up after the grader's limit.
        NameError: ``server.py`` defines no class ``Server``.
        Exception: what the files raise, but for the ``NotImplementedError`` at the end of a released file.
    """
    here = Path(folder).resolve()
    for given in ("scorer.onnx", "recipe.toml"):
        if not (here / given).is_file():
            raise CourseError(f"{given} is not in {here}: run the notebook's first cell")
    sources = {file: (here / file).read_text(encoding="utf-8") for file in FILES}
    recipe = Recipe.load(here / "recipe.toml").wire()
    engines = Engines()
    cache = Path(tempfile.mkdtemp(prefix="lab12-cache-"))
    weakref.finalize(engines, shutil.rmtree, cache, ignore_errors=True)  # a server keeps them
    engines.build((here / "scorer.onnx").read_bytes(), recipe)  # before the time counts, as the grader does
    made: Future[Any] = Future()

    def make() -> None:
        try:
            made.set_result(server_class(sources)(here / "scorer.onnx", recipe, cache, engines))
        except BaseException as error:  # SystemExit included
            made.set_exception(error)

    thread = threading.Thread(target=make, daemon=True)
    thread.start()
    thread.join(READY_S)
    if not made.done():
        raise CourseError(
            f"the server was not up after {READY_S:g} s, which is the grader's limit{_place(thread)}. "
            "Let `__init__` return: a loop that serves requests needs its own thread"
        )
    return made.result()


def _place(thread: threading.Thread) -> str:
    """Where a thread is in the learner's files, as the end of a sentence; empty if it is not in them."""
    frames = traceback.extract_stack(sys._current_frames().get(thread.ident or 0))
    own = [frame for frame in frames if frame.filename in FILES]
    return f": it is still in {own[-1].filename}, line {own[-1].lineno}" if own else ""


def ask(server: Any, requests: Sequence[Mapping[str, np.ndarray]]) -> list[dict[str, np.ndarray] | Exception]:
    """Send all requests at once, each from its own thread. The answers, or what was raised in their place.

    An answer in another form than the grader expects is replaced by a ``TypeError``.
    """
    answers: list[Any] = [TimeoutError(f"no answer within {ANSWER_S:g} s")] * len(requests)

    def one(number: int) -> None:
        try:
            answers[number] = _answer(server, requests[number])
        except Exception as error:
            answers[number] = error

    # Python does not wait for them at its end: a request may never be answered.
    threads = [threading.Thread(target=one, args=(number,), daemon=True) for number in range(len(requests))]
    ends = time.monotonic() + ANSWER_S
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, ends - time.monotonic()))
    return list(answers)


def _answer(server: Any, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    answer = arrays_of(server.answer(feeds))
    shape = np.shape(feeds[INPUT]) if INPUT in feeds else ()  # a malformed request may have any
    if shape[1:] == (FEATURES,) and (problem := misshapen(answer, shape[0])):
        raise TypeError(f"answer returned other arrays: {problem}")
    return answer
