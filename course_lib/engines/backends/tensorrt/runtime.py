"""The `tensorrt` and `tensorrt_rtx` backends' engine: loaded once, run by any number of executions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from course_lib.engines.backends.tensorrt import loaded
from course_lib.engines.backends.tensorrt.execution import Execution
from course_lib.engines.backends.tensorrt.loaded import Scratch
from course_lib.engines.backends.tensorrt.memory import allocate
from course_lib.engines.plan import Feeds, Plan
from course_lib.errors import EngineError


class TensorRTEngine:
    """A plan on the GPU. `infer` and `time_ms` use its own execution; `execution` makes more of them.

    Args:
        trt: the TensorRT module: 8.6, 10, 11 or TensorRT for RTX.
        plan: built for this device and version.
        weight_budget_bytes: see `loaded.load`.

    Raises:
        PlanError: TensorRT rejects the plan.
    """

    def __init__(self, trt: Any, plan: Plan, *, weight_budget_bytes: int | None = None) -> None:
        self.backend = plan.backend
        self.loaded = loaded.load(trt, plan, weight_budget_bytes)
        self.inputs, self.outputs = self.loaded.inputs, self.loaded.outputs

    def infer(self, feeds: Feeds) -> dict[str, np.ndarray]:
        """See `Engine.infer`. Copies in, runs and copies out on a stream of the engine's own."""
        return self._own.infer(feeds)

    def time_ms(self, feeds: Feeds) -> float:
        """See `Execution.time_ms`."""
        return self._own.time_ms(feeds)

    @property
    def clock(self) -> str:
        """See `Execution.clock`."""
        return self._own.clock

    @clock.setter
    def clock(self, clock: str) -> None:
        self._own.clock = clock

    def layer_times(self, feeds: Feeds, *, runs: int = 10) -> list[tuple[str, float]]:
        """See `Execution.layer_times`."""
        return self._own.layer_times(feeds, runs=runs)

    def execution(self, *, graph: bool = False, scratch: Scratch | None = None) -> Execution:
        """One more context, on its own stream; see `Execution`."""
        return Execution(self.loaded, graph=graph, scratch=scratch)

    def weight_names(self) -> tuple[str, ...]:
        """Names of the weights that may be replaced. For an ONNX model, they are the names of its initializers.

        Raises:
            EngineError: the plan was built without the recipe's flag ``refit``.
        """
        return tuple(self._refitter().get_all_weights())

    def refit(self, weights: Mapping[str, np.ndarray]) -> None:
        """Replace weights. Existing executions use the new weights from their next run on. No execution may run during the call.

        Raises:
            EngineError: the engine is not refittable, a name is unknown, the number or type of elements is wrong, or weights are missing
                that the builder merged with given ones.

        Source: NVIDIA TensorRT documentation, "Refitting an Engine".
        """
        refitter, log = self._refitter(), self.loaded.log
        known = set(refitter.get_all_weights())
        if unknown := sorted(weights.keys() - known):
            raise EngineError(
                f"no weights {unknown[0]!r} in this engine: it has {', '.join(sorted(known)[:8])} and {len(known)} in total"
            )
        held = {name: np.ascontiguousarray(array) for name, array in weights.items()}  # trt.Weights copies nothing
        for name, array in held.items():
            if not refitter.set_named_weights(name, self.loaded.trt.Weights(array)):
                raise EngineError(f"weights {name!r} reject {array.size} numbers of {array.dtype}: {log.take()}")
        if missing := sorted(refitter.get_missing_weights()):
            raise EngineError(f"these weights depend on what was replaced and must be given too: {', '.join(missing)}")
        if not refitter.refit_cuda_engine():
            raise EngineError(f"the engine cannot be refitted: {log.take()}")

    def _refitter(self) -> Any:
        if not self.loaded.engine.refittable:
            raise EngineError('this plan cannot be refitted: add "refit" to the recipe\'s flags and build it again')
        return self.loaded.trt.Refitter(self.loaded.engine, self.loaded.log)

    @cached_property
    def _own(self) -> Execution:
        return Execution(self.loaded)


def shared_scratch(*engines: TensorRTEngine) -> Scratch:
    """Memory for the intermediate results of executions of these engines. Only one of them may run at a time; see `Execution`.

    Raises:
        EngineError: the device does not have enough free memory.
    """
    size = max(engine.loaded.scratch_bytes for engine in engines)
    return Scratch(size, allocate(size))
