"""The `tensorrt` and `tensorrt_rtx` backends' engine: loaded once, run by any number of executions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from course_lib.engines.backends.tensorrt import loaded, refitting
from course_lib.engines.backends.tensorrt.execution import Execution
from course_lib.engines.backends.tensorrt.loaded import Scratch
from course_lib.engines.plan import Feeds, Plan


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
        """See `refitting.weight_names`."""
        return refitting.weight_names(self.loaded)

    def refit(self, weights: Mapping[str, np.ndarray]) -> None:
        """See `refitting.refit`."""
        refitting.refit(self.loaded, weights)

    @cached_property
    def _own(self) -> Execution:
        return Execution(self.loaded)


def shared_scratch(*engines: TensorRTEngine) -> Scratch:
    """Memory for the intermediate results of executions of these engines. Only one of them may run at a time; see `Execution`."""
    return loaded.shared_scratch(*(engine.loaded for engine in engines))
