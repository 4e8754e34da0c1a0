"""What lab 12 gives: the scorer and its recipe, a server that answers one request at a time, and a way to try a server in the notebook."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from course_lib.engines import build, default_runner
from course_lib.engines.cuda.driver import capability
from course_lib.engines.registry import availability
from course_lib.errors import CourseError
from course_lib.labs.lab12_serving.sandboxed.host import (
    FEATURES,
    FILES,
    INPUT,
    MOST_ROWS,
    OUTPUT,
    SCORES,
    Engines,
    misshapen,
    packed,
    server_class,
)
from course_lib.labs.lab12_serving.sandboxed.stage import ANSWER_S
from course_lib.recipe import Profile, Recipe

HIDDEN = 256
WIDE = 3072  # of the network that is timed: for one row, nearly all of the time goes into reading its weights
# The server of the notebook, without a cache.
ONE_AT_A_TIME = {
    "store.py": "def plan_for(model, recipe, cache, engines):\n    return engines.build(model, recipe)\n",
    "server.py": """\
import threading

from store import plan_for


class Server:
    def __init__(self, model, recipe, cache, engines):
        self.engine = engines.load(plan_for(model.read_bytes(), recipe, cache, engines))
        self.lock = threading.Lock()

    def answer(self, feeds):
        with self.lock:
            return self.engine.infer(feeds)
""",
}


@dataclass(frozen=True)
class Scorer:
    """A scorer of payments: three layers of random weights. The scores have no meaning, but a server must return them correctly.

    Attributes:
        seed: seed of the weights; another seed is a retrained network.
        hidden: width of the two hidden layers.
    """

    seed: int
    hidden: int

    def weights(self) -> list[np.ndarray]:
        """Float32 matrices ``(inputs, outputs)`` of each layer."""
        rng = np.random.default_rng(self.seed)
        sizes = (FEATURES, self.hidden, self.hidden, SCORES)
        return [rng.normal(0, (2 / rows) ** 0.5, (rows, columns)).astype(np.float32) for rows, columns in pairwise(sizes)]

    def scores(self, features: np.ndarray) -> np.ndarray:
        """The correct scores, float64 ``(n, SCORES)`` for ``(n, FEATURES)``, computed by numpy and not by an engine."""
        *hidden, last = self.weights()
        values = features.astype(np.float64)
        for matrix in hidden:
            values = np.maximum(values @ matrix, 0)
        return np.asarray(values @ last)

    def onnx(self) -> bytes:
        """The network as an ONNX file of operator set 17 with a dynamic batch."""
        from onnx import TensorProto, helper, numpy_helper

        tensors, nodes, value = [], [], INPUT
        matrices = self.weights()
        for index, matrix in enumerate(matrices):
            last = index == len(matrices) - 1
            tensors.append(numpy_helper.from_array(matrix, f"weight{index}"))
            product = OUTPUT if last else f"product{index}"
            nodes.append(helper.make_node("MatMul", [value, f"weight{index}"], [product], name=f"linear{index}"))
            if not last:
                value = f"hidden{index}"
                nodes.append(helper.make_node("Relu", [product], [value], name=f"relu{index}"))
        inputs = [helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, ["n", FEATURES])]
        outputs = [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, ["n", SCORES])]
        graph = helper.make_graph(nodes, "scorer", inputs, outputs, tensors)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        return bytes(model.SerializeToString())


def recipe(best: int = 8, largest: int = MOST_ROWS) -> Recipe:
    """The recipe of the service: 1 to 16 payments per inference."""
    return Recipe(profiles=(Profile({INPUT: {"min": (1, FEATURES), "opt": (best, FEATURES), "max": (largest, FEATURES)}}),))


def write_given(folder: str | Path = ".") -> None:
    """Write the files from which the notebook starts: ``scorer.onnx`` and ``recipe.toml``."""
    Path(folder, "scorer.onnx").write_bytes(Scorer(seed=8, hidden=HIDDEN).onnx())
    recipe().save(Path(folder, "recipe.toml"))


def engines() -> Engines:
    """Engines of this process, for a server in the notebook. A model is compiled by each build."""
    backend = default_runner()
    here = {"version": availability(backend).version, "device": capability() or "cpu"}

    def compiled(model: bytes, settings: Mapping[str, Any]) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            (file := Path(folder, "model.onnx")).write_bytes(model)
            plan = build(file, Recipe(**settings), backend=backend)
        return packed({**here, "plan": plan.summary()}, plan.data)

    return Engines(here["version"], here["device"], compiled)


def start(folder: Path | str = ".") -> Any:
    """A ``Server`` of the folder's ``store.py`` and ``server.py`` for its ``scorer.onnx``, with an empty cache and engines of this process.

    Raises:
        CourseError: a file is missing.
        Exception: what the files raise, but for the ``NotImplementedError`` at the end of a released file.
    """
    here = Path(folder).resolve()
    if absent := [name for name in ("scorer.onnx", "recipe.toml", *FILES) if not (here / name).is_file()]:
        raise CourseError(f"{absent[0]} is not in {here}: run the notebook's cell that writes it")
    its, cache = engines(), Path(tempfile.mkdtemp(prefix="lab12-cache-"))
    weakref.finalize(its, shutil.rmtree, cache, ignore_errors=True)  # a server keeps them
    made = server_class({file: (here / file).read_text(encoding="utf-8") for file in FILES})
    return made(here / "scorer.onnx", Recipe.load(here / "recipe.toml").wire(), cache, its)


def ask(server: Any, requests: Sequence[Mapping[str, np.ndarray]]) -> list[dict[str, np.ndarray] | Exception]:
    """Send all requests at once, each from its own thread. The answers, or what was raised in their place.

    An answer in another form than the grader expects is replaced by a ``TypeError``.
    """
    answers: list[Any] = [TimeoutError(f"no answer within {ANSWER_S:g} s")] * len(requests)

    def one(number: int, feeds: Mapping[str, np.ndarray]) -> None:
        try:
            answers[number] = server.answer(feeds)
            if problem := misshapen(answers[number], len(feeds.get(INPUT, ()))):
                answers[number] = TypeError(problem)
        except Exception as error:
            answers[number] = error

    # Python does not wait for them at its end: a request may never be answered.
    threads = [threading.Thread(target=one, args=request, daemon=True) for request in enumerate(requests)]
    for thread in threads:
        thread.start()
    ends = time.monotonic() + ANSWER_S
    for thread in threads:
        thread.join(max(0.0, ends - time.monotonic()))
    return list(answers)
