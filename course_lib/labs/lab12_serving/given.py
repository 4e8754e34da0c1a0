"""What lab 12 gives: the scorer and its recipe, a server that answers one request at a time, and a way to try a server in the notebook."""

from __future__ import annotations

import builtins
import contextlib
import json
import shutil
import sys
import tempfile
import threading
import time
import types
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from course_lib.engines import registry
from course_lib.engines.layers import LayerTable
from course_lib.engines.plan import Engine, Plan
from course_lib.errors import BuildError, CourseError, EngineError, PlanError

if TYPE_CHECKING:
    from course_lib.recipe import Recipe

FEATURES, SCORES = 256, 8
INPUT, OUTPUT = "features", "scores"
MOST_ROWS = 16  # rows of one inference, as the recipe declares
FILES = ("store.py", "server.py")
ANSWER_S = 10.0  # longest wait for one answer
_PERMITTED = {*sys.stdlib_module_names, "numpy", "store", "server"}
Feeds = Mapping[str, np.ndarray]
HIDDEN = 256
WIDE = 3072  # of the network that is timed: for one row, nearly all of the time goes into reading its weights
_NETWORK = f"""
<ir_version: 8, opset_import: ["": 17]>
scorer (float[n, {FEATURES}] {INPUT}) => (float[n, {SCORES}] {OUTPUT}) {{
  product0 = MatMul({INPUT}, weight0)
  hidden0 = Relu(product0)
  product1 = MatMul(hidden0, weight1)
  hidden1 = Relu(product1)
  {OUTPUT} = MatMul(hidden1, weight2)
}}"""
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
        import onnx

        model = onnx.parser.parse_model(_NETWORK)
        for index, matrix in enumerate(self.weights()):
            model.graph.initializer.append(onnx.numpy_helper.from_array(matrix, f"weight{index}"))
        return bytes(model.SerializeToString())


def recipe(best: int = 8, largest: int = MOST_ROWS) -> Recipe:
    """The recipe of the service: 1 to 16 payments per inference."""
    from course_lib.recipe import Profile, Recipe

    return Recipe(profiles=(Profile({INPUT: {"min": (1, FEATURES), "opt": (best, FEATURES), "max": (largest, FEATURES)}}),))


def import_numpy_only(name: str, *arguments: Any) -> types.ModuleType:
    """``__import__`` for the learner's files."""
    if name.partition(".")[0] not in _PERMITTED:
        raise ImportError(f"the server may import numpy and Python's own modules, not {name!r}")
    return builtins.__import__(name, *arguments)


def server_class(sources: Mapping[str, str]) -> Callable[..., Any]:
    """The ``Server`` of the learner's two files, which run as modules ``store`` and ``server``.

    A ``NotImplementedError`` is suppressed: the released file ends like that, below a server that works.

    Raises:
        NameError: ``server.py`` defines no class ``Server``.
        Exception: what the files raise.
    """
    for file in FILES:
        module = types.ModuleType(file.removesuffix(".py"))
        sys.modules[module.__name__] = module  # server.py imports store
        vars(module)["__builtins__"] = {**vars(builtins), "__import__": import_numpy_only}
        with contextlib.suppress(NotImplementedError):
            exec(compile(sources[file], file, "exec"), vars(module))
    if (factory := vars(module).get("Server")) is None:  # of the last file
        raise NameError("server.py defines no class Server, or raises NotImplementedError above it")
    return cast(Callable[..., Any], factory)


def packed(label: Mapping[str, Any], data: bytes) -> bytes:
    """A plan in the form that a server receives: a line with its version, its device and its summary, then the engine's bytes."""
    return json.dumps(label).encode() + b"\n" + data


class Engines:
    """What a server receives: `build`, `load`, and what plans depend on.

    Attributes:
        version: of the compiler and the runtime.
        device: compute capability of the GPU, such as ``"sm90"``, or ``"cpu"``.
        runs: number of inferences so far.
    """

    BuildError, PlanError, EngineError = BuildError, PlanError, EngineError

    def __init__(
        self,
        version: str,
        device: str,
        compiled: Callable[[bytes, Mapping[str, Any]], bytes],
        before_load: Callable[[], object] = lambda: None,
        before_run: Callable[[Feeds], object] = lambda feeds: None,
    ) -> None:
        self.version, self.device, self.runs = version, device, 0
        self._compiled, self._before_load, self.before_run = compiled, before_load, before_run

    def build(self, model: bytes, recipe: Mapping[str, Any]) -> bytes:
        """Compile a serialized ONNX model, which takes long.

        Raises:
            BuildError: the compiler failed.
        """
        return self._compiled(model, recipe)

    def load(self, plan: bytes) -> Context:
        """An engine with one execution context. As with TensorRT, a damaged plan may load without an error.

        Raises:
            PlanError: the data is not a plan, or belongs to another version or device.
        """
        self._before_load()
        label, _, data = bytes(plan).partition(b"\n")
        try:
            built = json.loads(label)
            found = Plan.from_json({**built["plan"], "layers": LayerTable((), {}).to_json()}, data)
            built_by = built["version"], built["device"]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise PlanError("the data is not a plan") from None
        if built_by != (self.version, self.device):
            raise PlanError(f"the plan was built by {' on '.join(built_by)}, this is {self.version} on {self.device}")
        try:
            return Context(registry.load(found), self)
        except Exception as error:  # a damaged plan can fail in more ways than backends have classes for
            raise PlanError(f"the plan cannot be loaded: {error}"[:200]) from None


class Context:
    """An engine's execution context. One thread at a time may use it."""

    def __init__(self, engine: Engine, engines: Engines) -> None:
        self._engine, self._engines, self._one = engine, engines, threading.Lock()

    def infer(self, feeds: Feeds) -> dict[str, np.ndarray]:
        """Outputs by name for inputs by name.

        Raises:
            EngineError: the inference failed, or another thread uses this context.
        """
        if not self._one.acquire(blocking=False):
            raise EngineError("two threads in one execution context: TensorRT does not allow it")
        try:
            self._engines.runs += 1
            self._engines.before_run(feeds)
            return self._engine.infer(dict(feeds))
        finally:
            self._one.release()


def misshapen(answer: Any, rows: int) -> str:
    """How a server's answer differs in form from the scores of so many rows; empty if it does not."""
    if isinstance(answer, dict) and set(answer) == {OUTPUT} and _kind(answer[OUTPUT]) == f"float32 ({rows}, {SCORES})":
        return ""
    found = ", ".join(f"{name!r}: {_kind(value)}" for name, value in answer.items()) if isinstance(answer, dict) else ""
    shown = f"{{{found}}}" if isinstance(answer, dict) else _kind(answer)
    return f"answer returned {shown[:200]}, expected {{{OUTPUT!r}: float32 ({rows}, {SCORES})}}: check its `return`"


def _kind(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape}"
    return "None" if value is None else type(value).__name__


def write_given(folder: str | Path = ".") -> None:
    """Write the files from which the notebook starts: ``scorer.onnx`` and ``recipe.toml``."""
    Path(folder, "scorer.onnx").write_bytes(Scorer(seed=8, hidden=HIDDEN).onnx())
    recipe().save(Path(folder, "recipe.toml"))


def engines() -> Engines:
    """Engines of this process, for a server in the notebook. A model is compiled by each build."""
    from course_lib.engines import build, default_runner
    from course_lib.engines.cuda.driver import capability
    from course_lib.recipe import Recipe

    backend = default_runner()
    here = {"version": registry.availability(backend).version, "device": capability() or "cpu"}

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
    from course_lib.recipe import Recipe

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
