"""Loads and runs a TensorRT plan, for TensorRT 8.6, 10 and 11 and for TensorRT for RTX; buffers with pycuda."""

from __future__ import annotations

import atexit
from functools import cache
from typing import Any

import numpy as np

from course_lib.engines import cuda_driver
from course_lib.engines.base import Feeds, Plan, TensorInfo, check_feeds, check_profiles, check_target
from course_lib.errors import BackendUnavailable, EngineError, PlanError


class TensorRTEngine:
    """One engine, one context, one stream of its own. Not for use from several threads at a time."""

    def __init__(self, trt: Any, plan: Plan) -> None:
        check_target(plan, cuda_driver.capability())  # before the runtime: without a driver it would end the process
        self.backend = plan.backend
        self._trt = trt
        self._recipe = plan.recipe
        self._cuda = _pycuda()
        self._log = _error_log(trt)
        self._runtime = trt.Runtime(self._log)
        self._engine = self._runtime.deserialize_cuda_engine(plan.data)
        if self._engine is None:
            raise PlanError(f"TensorRT {trt.__version__} refuses the plan: {self._log.last()}")
        self._context = self._engine.create_execution_context()
        self._stream = self._cuda.Stream()
        self._profile = 0
        self._buffers: dict[str, tuple[int, Any]] = {}  # tensor name: size in bytes, device memory
        names = [self._engine.get_tensor_name(i) for i in range(self._engine.num_io_tensors)]
        is_input = {name: self._engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT for name in names}
        self.inputs = tuple(self._info(name) for name in names if is_input[name])
        self.outputs = tuple(self._info(name) for name in names if not is_input[name])

    def infer(self, feeds: Feeds) -> dict[str, np.ndarray]:
        """See `Engine.infer`. Copies in, runs and copies out on the engine's stream."""
        self._set_inputs(feeds)
        outputs = self._set_outputs()
        self._enqueue()
        for name, array in outputs.items():
            self._cuda.memcpy_dtoh_async(array, self._buffers[name][1], self._stream)
        self._stream.synchronize()
        return outputs

    def time_ms(self, feeds: Feeds) -> float:
        """See `Engine.time_ms`. Device time between two events around the enqueue; copies are not counted."""
        self._set_inputs(feeds)
        self._set_outputs()
        self._stream.synchronize()
        begin, end = self._cuda.Event(), self._cuda.Event()
        begin.record(self._stream)
        self._enqueue()
        end.record(self._stream)
        end.synchronize()
        return float(begin.time_till(end))

    def _info(self, name: str) -> TensorInfo:
        dtype = np.dtype(self._trt.nptype(self._engine.get_tensor_dtype(name)))
        return TensorInfo(name, tuple(self._engine.get_tensor_shape(name)), str(dtype))

    def _set_inputs(self, feeds: Feeds) -> None:
        check_feeds(self.inputs, feeds)
        profile = check_profiles(self._recipe, feeds)
        if profile is not None and profile != self._profile:
            self._context.set_optimization_profile_async(profile, self._stream.handle)
            self._profile = profile
        for name, array in feeds.items():
            if not self._context.set_input_shape(name, array.shape):
                raise EngineError(f"input {name!r} refuses shape {array.shape}: {self._log.last()}")
            array = np.ascontiguousarray(array)
            self._cuda.memcpy_htod_async(self._address(name, array.nbytes), array, self._stream)

    def _set_outputs(self) -> dict[str, np.ndarray]:
        outputs = {}
        for info in self.outputs:
            shape = tuple(self._context.get_tensor_shape(info.name))
            if min((0, *shape)) < 0:
                raise EngineError(f"the shape of output {info.name!r} depends on data, which this engine does not serve")
            outputs[info.name] = np.empty(shape, info.dtype)
            self._address(info.name, outputs[info.name].nbytes)
        return outputs

    def _address(self, name: str, size: int) -> Any:
        """Device memory of at least `size` bytes for a tensor, kept between calls, known to the context."""
        if self._buffers.get(name, (0, None))[0] < size or name not in self._buffers:
            self._buffers[name] = (size, self._cuda.mem_alloc(max(size, 1)))
        memory = self._buffers[name][1]
        self._context.set_tensor_address(name, int(memory))
        return memory

    def _enqueue(self) -> None:
        if not self._context.execute_async_v3(self._stream.handle):
            raise EngineError(f"the engine failed to run: {self._log.last()}")


@cache
def _pycuda() -> Any:
    """The `pycuda.driver` module with the device's primary context current, the one that torch uses too."""
    try:
        import pycuda.driver as driver
    except ImportError:
        raise BackendUnavailable("running a plan needs pycuda for its buffers: pip install pycuda") from None
    driver.init()
    driver.Device(0).retain_primary_context().push()
    atexit.register(driver.Context.pop)  # pycuda aborts a process that leaves a context on its stack
    return driver


def _error_log(trt: Any) -> Any:
    class Log(trt.ILogger):
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self._errors: list[str] = []

        def log(self, severity: Any, message: str) -> None:
            if severity in (trt.ILogger.Severity.INTERNAL_ERROR, trt.ILogger.Severity.ERROR):
                self._errors = [*self._errors[-9:], message]

        def last(self) -> str:
            return " ".join(self._errors[0].split()) if self._errors else "no reason was logged"

    return Log()
