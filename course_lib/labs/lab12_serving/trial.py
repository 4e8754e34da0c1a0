"""A server of lab 12 in the notebook's own process. The grader's engines have the same names and errors, in processes of their own."""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from course_lib.engines import Engine, Plan, build, default_runner, load
from course_lib.engines.cuda.driver import capability
from course_lib.engines.registry import availability
from course_lib.errors import BuildError, CourseError, EngineError, PlanError
from course_lib.labs.lab12_serving.sandboxed.server_host import FILES, one_thread, server_class
from course_lib.recipe import Recipe

LONGEST_S = 5.0  # for an answer, as the grader waits


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

    def build(self, model: bytes, recipe: Mapping[str, Any]) -> bytes:
        """Compile a serialized ONNX model.

        Raises:
            BuildError: the compiler failed.
        """
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "model.onnx")
            file.write_bytes(model)
            plan = build(file, Recipe(**recipe), backend=self._backend)
        return json.dumps(plan.to_json()).encode() + b"\n" + plan.data

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
        CourseError: the folder has no ``scorer.onnx`` or ``recipe.toml``.
        NameError: ``server.py`` defines no class ``Server``.
        Exception: what the files raise, but for the ``NotImplementedError`` at the end of a released file.
    """
    here = Path(folder).resolve()
    for given in ("scorer.onnx", "recipe.toml"):
        if not (here / given).is_file():
            raise CourseError(f"{given} is not in {here}: run the notebook's first cell")
    factory = server_class({file: (here / file).read_text(encoding="utf-8") for file in FILES})
    recipe = Recipe.load(here / "recipe.toml").wire()
    engines = Engines()
    cache = Path(tempfile.mkdtemp(prefix="lab12-cache-"))
    weakref.finalize(engines, shutil.rmtree, cache, ignore_errors=True)  # a server keeps them
    return factory(here / "scorer.onnx", recipe, cache, engines)


def ask(server: Any, requests: Sequence[Mapping[str, np.ndarray]]) -> list[dict[str, np.ndarray] | Exception]:
    """Send all requests at once, each from a thread of its own. The answers, or what was raised in their place."""
    answers: list[Any] = [TimeoutError(f"no answer within {LONGEST_S:g} s")] * len(requests)

    def one(number: int) -> None:
        try:
            answers[number] = server.answer(requests[number])
        except Exception as error:
            answers[number] = error

    # Python does not wait for them at its end: a request may never be answered.
    threads = [threading.Thread(target=one, args=(number,), daemon=True) for number in range(len(requests))]
    ends = time.monotonic() + LONGEST_S
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, ends - time.monotonic()))
    return list(answers)
