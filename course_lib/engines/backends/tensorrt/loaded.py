"""A plan turned into an `ICudaEngine`: its tensors, its memory and its contexts. It handles the differences between versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from course_lib.engines.backends.tensorrt.log import keep_log
from course_lib.engines.backends.tensorrt.memory import cuda
from course_lib.engines.cuda import driver
from course_lib.engines.plan import Plan, TensorInfo, check_target
from course_lib.errors import EngineError, PlanError

_DTYPES = {  # numpy's names, or torch's where numpy has none; `trt.nptype` rejects those, and the lean runtime has no `nptype`
    "FLOAT": "float32", "HALF": "float16", "BF16": "bfloat16", "FP8": "float8_e4m3fn", "INT8": "int8", "UINT8": "uint8",
    "INT32": "int32", "INT64": "int64", "BOOL": "bool",
}  # fmt: skip


@dataclass(frozen=True)
class Scratch:
    """Device memory for intermediate results, shared by executions of which one runs at a time."""

    size: int
    memory: Any = field(repr=False)


@dataclass(frozen=True)
class Loaded:
    """An engine and what is known about it.

    Attributes:
        trt: the TensorRT module.
        engine: its `ICudaEngine`.
        log: logger of the runtime.
        runtime: kept, because an engine does not keep its runtime alive in every version.
        recipe: the recipe of the plan; its profiles decide which shapes go to which profile.
        inputs, outputs: the I/O tensors.
    """

    trt: Any
    engine: Any
    log: Any
    runtime: Any
    recipe: Mapping[str, Any]
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]

    @property
    def scratch_bytes(self) -> int:
        """Device memory that one context needs for its intermediate results, for the largest shapes of any profile."""
        engine = self.engine
        return int(engine.device_memory_size_v2 if hasattr(engine, "device_memory_size_v2") else engine.device_memory_size)

    def create_context(self, scratch: Scratch | None) -> Any:
        """An execution context, with its own memory or on `scratch`.

        Raises:
            EngineError: the scratch memory is too small, or TensorRT makes no context.
        """
        if scratch is None:
            return self._made(self.engine.create_execution_context())
        if scratch.size < self.scratch_bytes:
            raise EngineError(
                f"this engine needs {self.scratch_bytes} bytes of scratch memory, the shared one has {scratch.size}"
            )
        if hasattr(self.trt, "ExecutionContextAllocationStrategy"):  # since 10
            strategy = self.trt.ExecutionContextAllocationStrategy.USER_MANAGED
            context = self._made(self.engine.create_execution_context(strategy))
            context.set_device_memory(int(scratch.memory), scratch.size)
        else:
            context = self._made(self.engine.create_execution_context_without_device_memory())
            context.device_memory = int(scratch.memory)
        return context

    def _made(self, context: Any) -> Any:
        if context is None:
            raise EngineError(f"TensorRT cannot create an execution context: {self.log.take()}")
        return context


def load(trt: Any, plan: Plan, weight_budget_bytes: int | None = None) -> Loaded:
    """Deserialize a plan.

    Args:
        weight_budget_bytes: number of bytes of weights that may stay on the device. The rest is streamed from the host in every run.
            Needs the recipe's flag ``weight_streaming`` and TensorRT 10 or later. None keeps all of them there.

    Raises:
        PlanError: made for another device or version, or damaged; with the reason from the runtime's log.
        EngineError: the plan's weights cannot be streamed.
    """
    check_target(plan, driver.capability())  # before the runtime: without a driver it would end the process
    cuda()
    log = keep_log(trt)
    runtime = trt.Runtime(log)
    if "version_compatible" in plan.recipe.get("flags", ()):
        runtime.engine_host_code_allowed = True  # such a plan carries its own runtime; it is our own plan
    engine = runtime.deserialize_cuda_engine(plan.data)
    if engine is None:
        raise PlanError(f"TensorRT {trt.__version__} rejects the plan: {log.take()}")
    if weight_budget_bytes is not None:
        _set_weight_budget(trt, engine, log, weight_budget_bytes)
    names = [engine.get_tensor_name(i) for i in range(engine.num_io_tensors)]
    dtypes = {name: engine.get_tensor_dtype(name).name for name in names}
    infos = {n: TensorInfo(n, _shape(engine, n), _DTYPES.get(dtypes[n], dtypes[n].lower())) for n in names}
    is_input = {name: engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT for name in names}
    return Loaded(
        trt,
        engine,
        log,
        runtime,
        plan.recipe,
        inputs=tuple(infos[name] for name in names if is_input[name]),
        outputs=tuple(infos[name] for name in names if not is_input[name]),
    )


def _shape(engine: Any, name: str) -> tuple[int, ...]:
    shape = dimensions(engine.get_tensor_shape(name))
    if shape == (-1,) and hasattr(engine, "get_binding_shape"):  # 8.6 tells some shapes only through its older interface
        shape = dimensions(engine.get_binding_shape(name))
    return shape


def dimensions(shape: Any) -> tuple[int, ...]:
    """A `Dims` as a tuple; ``(-1,)`` if the rank is unknown, as in 8.6 for some outputs with data-dependent shapes."""
    try:
        return tuple(shape)
    except ValueError:  # its length is -1
        return (-1,)


def _set_weight_budget(trt: Any, engine: Any, log: Any, budget: int) -> None:
    if not hasattr(engine, "weight_streaming_budget_v2"):
        raise EngineError(f"TensorRT {trt.__version__} cannot stream weights: version 10 and later can")
    if not engine.streamable_weights_size:
        raise EngineError(
            'this plan has no weights to stream: put "weight_streaming" among the recipe\'s flags and build it again'
        )
    wanted = min(budget, engine.streamable_weights_size)
    engine.weight_streaming_budget_v2 = wanted
    if engine.weight_streaming_budget_v2 != wanted:  # the setter tells nobody that it failed
        raise EngineError(f"a weight budget of {wanted} bytes is rejected: {log.take()}")
