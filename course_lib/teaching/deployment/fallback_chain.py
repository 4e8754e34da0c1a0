"""A chain of ways to run a model: the first one that loads and answers a known request correctly is used, and each other has a reason."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from course_lib._util.cpu_int8 import session_options
from course_lib._util.plain_text import reason
from course_lib.engines.plan import Feeds, Plan
from course_lib.errors import BackendUnavailable, CourseError, EngineError

if TYPE_CHECKING:
    import numpy as np

_TENSORRT = "TensorrtExecutionProvider"
_TOLERANCE = 1e-2  # the largest accepted difference, relative to the largest magnitude in each output
_FATAL_ONLY = 4  # the provider prints what it misses; the answer of `get_providers` says it too


class Answers(Protocol):
    """The interface that a chain requires of an engine."""

    def infer(self, feeds: Feeds) -> dict[str, np.ndarray]:
        """See `Engine.infer`."""
        ...


@dataclass(frozen=True)
class Step:
    """The result of one way.

    Attributes:
        outcome: "chosen"; "rejected", it did not load or run; "wrong", it answered something else; "not tried", an earlier one did.
        reason: one line for a person.
        seconds: time to load it and to get its first answer.
    """

    name: str
    outcome: Literal["chosen", "rejected", "wrong", "not tried"]
    reason: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.name}: {self.outcome}" + (f", {self.reason}" if self.reason else "") + f" ({self.seconds:.2f} s)"


@dataclass(frozen=True)
class Chosen:
    """The engine in use, its name in the chain, and the whole chain with the reasons."""

    engine: Answers
    name: str
    steps: tuple[Step, ...]


def first_that_answers(ways: Mapping[str, Callable[[], Answers]], feeds: Feeds, wanted: Mapping[str, np.ndarray]) -> Chosen:
    """Try the ways in order, and return the first one that answers correctly.

    Args:
        ways: functions that open an engine, by name, the best first. After a `CourseError`, the next function is tried.
        feeds: a known request.
        wanted: the correct answer to it.

    Raises:
        EngineError: none of them answers; the text names each reason.
    """
    steps: list[Step] = []
    found: Chosen | None = None
    for name, way in ways.items():
        if found:
            steps.append(Step(name, "not tried", "", 0.0))
            continue
        started = time.perf_counter()
        outcome: Literal["chosen", "wrong", "rejected"] = "rejected"
        try:
            engine = way()
            reason = _difference(engine.infer(feeds), wanted)
            outcome = "wrong" if reason else "chosen"
        except CourseError as error:
            reason = str(error)
        steps.append(Step(name, outcome, reason, time.perf_counter() - started))
        if outcome == "chosen":
            found = Chosen(engine, name, ())
    if found is None:
        raise EngineError("nothing runs this model here: " + "; ".join(f"{step.name}: {step.reason}" for step in steps))
    return Chosen(found.engine, found.name, tuple(steps))


def _difference(outputs: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray]) -> str:
    """What is wrong with the outputs; empty if nothing is."""
    import numpy as np

    for name, right in wanted.items():
        if name not in outputs or outputs[name].shape != right.shape:
            return f"it gave no {name!r} of shape {right.shape}"
        off, size = float(np.abs(outputs[name] - right).max()), float(np.abs(right).max())
        if not off <= _TOLERANCE * size:  # a NaN is not within anything
            return f"{name!r} of the known request is off by {off:.2g}, allowed is {_TOLERANCE * size:.2g}"
    return ""


class TensorRTProvider:
    """ONNX Runtime with its TensorRT provider, which builds an engine when it loads and leaves to CUDA what TensorRT rejects.

    If ONNX Runtime cannot load a requested provider, it continues without it and prints a message at most. Here that is an error.

    Raises:
        BackendUnavailable: this ONNX Runtime has no such provider, or it does not load here.
    """

    def __init__(self, plan: Plan) -> None:
        import onnxruntime

        have = onnxruntime.get_available_providers()
        if _TENSORRT not in have:
            named = ", ".join(name.removesuffix("ExecutionProvider") for name in have)
            raise BackendUnavailable(
                f"onnxruntime {onnxruntime.__version__} was built for {named}, without TensorRT: pip install onnxruntime-gpu"
            )
        options = session_options(threads=0)  # as many as there are cores, its own choice
        options.log_severity_level = _FATAL_ONLY
        providers = [_TENSORRT, "CUDAExecutionProvider", "CPUExecutionProvider"]
        try:
            self._session: Any = onnxruntime.InferenceSession(plan.data, options, providers=providers)
        except Exception as error:  # onnxruntime raises classes of its own binding, without a common public base
            raise BackendUnavailable(f"onnxruntime's TensorRT provider failed: {reason(error)}") from None
        if _TENSORRT not in self._session.get_providers():
            raise BackendUnavailable(
                f"onnxruntime {onnxruntime.__version__} has a TensorRT provider that did not load: "
                "install the TensorRT that it was built for"
            )

    def infer(self, feeds: Feeds) -> dict[str, np.ndarray]:
        """Outputs by name.

        Raises:
            EngineError: it rejects the inputs or fails.
        """
        try:
            outputs = self._session.run(None, dict(feeds))
        except Exception as error:
            raise EngineError(f"onnxruntime failed: {reason(error)}") from None
        return dict(zip((output.name for output in self._session.get_outputs()), outputs, strict=True))
