"""The stand-in's execution context: shapes, addresses, and runs that happen when their stream is synchronized."""

# ruff: noqa: D101, D102  (NVIDIA documents these classes and calls)

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from course_lib.standin import gpu
from course_lib.standin.conforming import Template, kept
from course_lib.standin.onnx_model import numpy_type
from course_lib.standin.trt.values import call_user, report

Shapes = dict[str, tuple[int, ...]]
_ALIGNMENT = 256  # of device memory that the user brings


class IExecutionContext(Template):
    def _setup(self, engine: Any, strategy: Any) -> None:
        self._engine, self._strategy = engine, strategy
        self._handle = gpu.current().new_handle()
        self._profile, self._device_profile = 0, 0  # as set, and as it has arrived on the device
        self._shapes: Shapes = {}
        self._addresses: dict[str, int] = {}
        self._allocators: dict[str, Any] = {}
        self._scratch: tuple[int, int] | None = None  # address and size
        self._ran: Any = None  # profile and shapes of the last run that was not a capture
        self._profiler: Any = None
        self._emits_profile = True
        self._times: list[tuple[str, float]] | None = None
        self._name = ""
        self._reserved: Any = lambda: None
        self._reserve(strategy.name != "USER_MANAGED")
        self._forget_shapes()
        device = gpu.current()
        device.note("context", self._handle, engine._handle)
        gpu.when_gone(self, device.note, "context_gone", self._handle)

    def _reserve(self, wanted: bool) -> None:
        """Count the memory for intermediate results that this context takes for itself."""
        self._reserved()
        if wanted:
            by_profile = self._strategy.name == "ON_PROFILE_CHANGE"
            engine, device = self._engine, gpu.current()
            size = engine.get_device_memory_size_for_profile_v2(self._profile) if by_profile else engine.device_memory_size_v2
            device.reserve(size)
            self._reserved = weakref.finalize(self, device.release, size)

    def _forget_shapes(self) -> None:
        model = self._engine._model
        self._shapes = {name: shape for name in model.inputs if min((0, *(shape := model.shapes[name]))) >= 0}

    @property
    def engine(self) -> Any:
        return self._engine

    name = kept("_name", "str")

    # ---- profiles and shapes

    @property
    def active_optimization_profile(self) -> int:
        return self._profile

    def set_optimization_profile_async(self, profile_index: int, stream_handle: int) -> bool:
        """The binding raises where the library returns False."""
        if not 0 <= profile_index < self._engine.num_optimization_profiles:
            self._complain("setOptimizationProfileAsync", "profileIndex >= 0 && profileIndex < getNbOptimizationProfiles()")
            raise RuntimeError("Error in set optimization profile async.")

        def arrive() -> None:
            self._device_profile = profile_index

        gpu.current().enqueue(stream_handle, arrive, "cudaMemcpyAsync")
        gpu.current().note("profile", stream_handle, self._handle, profile_index)
        if profile_index != self._profile:
            self._profile = profile_index
            self._forget_shapes()
            self._reserve(self._strategy.name == "ON_PROFILE_CHANGE")
        return True

    def set_input_shape(self, name: str, shape: Any) -> bool:
        try:
            sizes = tuple(int(np.int32(size)) for size in shape)
        except (TypeError, ValueError) as error:
            raise RuntimeError(f"Unable to cast Python instance to C++ type: {error}") from None
        if name not in self._engine._model.inputs:
            return self._complain("setInputShape", f"the engine has an input tensor of the name {name}")
        profiles = range(max(1, self._engine.num_optimization_profiles))
        if not any(self._contains(name, sizes, profile) for profile in profiles):  # as 8.6.0, whichever profile is active
            valid = " ".join(f"Valid range for profile {profile}: {self._range(name, profile)}." for profile in profiles)
            problem = f"Set dimension {_text(sizes)} for tensor {name} does not satisfy any optimization profiles. {valid}"
            return self._complain("setInputShape", f"satisfyProfile. {problem}")
        self._shapes[name] = sizes
        return True

    def _contains(self, name: str, sizes: tuple[int, ...], profile: int) -> bool:
        low, _, high = self._engine._ranges(name, profile)
        return len(sizes) == len(low) and all(a <= n <= b for a, n, b in zip(low, sizes, high, strict=True))

    def _range(self, name: str, profile: int) -> str:
        low, _, high = self._engine._ranges(name, profile)
        return f"{_text(low)}..{_text(high)}"

    def get_tensor_shape(self, name: str) -> Any:
        """Of an output -1 wherever the inputs' shapes do not tell it."""
        engine = self._engine
        if name in engine._model.inputs:
            return self._trt.Dims(self._shapes.get(name, engine._model.shapes[name]))
        if not engine._knows("getTensorShape", name) or self.infer_shapes():
            return engine.get_tensor_shape(name)
        return self._trt.Dims(engine._model.output_shapes(self._shapes)[name])

    def infer_shapes(self) -> list[str]:
        return [name for name in self._engine._model.inputs if name not in self._shapes]

    def get_max_output_size(self, name: str) -> int:
        model = self._engine._model
        if name not in model.outputs or self.infer_shapes():
            return -1
        return int(np.prod(model.largest_outputs(self._shapes)[name], dtype=np.int64)) * numpy_type(model.dtypes[name]).itemsize

    # ---- memory

    def set_tensor_address(self, name: str, memory: int) -> bool:
        if not self._engine._knows("setTensorAddress", name):
            return False
        self._addresses[name] = memory
        return True

    def get_tensor_address(self, name: str) -> int:
        return self._addresses.get(name, 0)

    def set_output_allocator(self, name: str, output_allocator: Any) -> bool:
        if name not in self._engine._model.outputs:
            return self._complain("setOutputAllocator", f"the engine has an output tensor of the name {name}")
        self._allocators.pop(name, None)
        if output_allocator is not None:
            self._allocators[name] = output_allocator
        return True

    def set_device_memory(self, memory: int, size: int) -> None:
        if self._strategy.name != "USER_MANAGED":
            self._complain("setDeviceMemoryV2", "the context was created with USER_MANAGED memory")
        elif size < self._engine.get_device_memory_size_for_profile_v2(self._profile):
            self._complain("setDeviceMemoryV2", f"size >= engine.device_memory_size_v2, which {size} is not")
        elif memory % _ALIGNMENT:
            self._complain("setDeviceMemoryV2", f"the address is aligned to {_ALIGNMENT} bytes")
        else:
            self._scratch = (memory, size)

    # ---- running

    def execute_async_v3(self, stream_handle: int) -> bool:
        if rejection := self._not_ready():
            return self._complain("enqueueV3", rejection)
        device, capturing = gpu.current(), gpu.current().is_capturing(stream_handle)
        state = (self._profile, dict(self._shapes))
        if capturing and (self._ran != state or self._allocators or self._engine._model.data_dependent):
            device.break_capture(stream_handle)  # it would allocate or synchronize
            return self._fail("operation not permitted when stream is capturing")
        if stream_handle == gpu.DEFAULT_STREAM:
            report(self._engine._logger, "WARNING", "Using default stream in enqueueV3() may lead to performance issues.")
        try:
            device.enqueue(stream_handle, _prepare_run(self, stream_handle, capturing), "enqueueV3")
            device.note("run", stream_handle, self._handle, self._profile, dict(self._shapes), *self._memory_of_run())
            if self._allocators or self._engine._model.data_dependent:
                device.synchronize(stream_handle, "enqueueV3")  # TensorRT waits to learn the shapes
            if self._profiler is not None and self._emits_profile and not capturing:
                device.synchronize(stream_handle, "enqueueV3")
                self.report_to_profiler()
        except gpu.Error as error:
            return self._fail(str(error))
        if not capturing:
            self._ran = state
        return True

    def _memory_of_run(self) -> tuple[dict[str, tuple[int, int]], dict[str, tuple[int, int]]]:
        """Address and bytes of each input and of each output that has an address."""
        model, addresses = self._engine._model, self._addresses
        sizes = {name: int(np.prod(shape, dtype=np.int64)) for name, shape in self._shapes.items()}
        reads = {name: (addresses[name], sizes[name] * numpy_type(model.dtypes[name]).itemsize) for name in model.inputs}
        outputs = [name for name in model.outputs if addresses.get(name) and name not in self._allocators]
        return reads, {name: (addresses[name], self.get_max_output_size(name)) for name in outputs}

    def _not_ready(self) -> str:
        """The condition that a run would violate; empty if it may start."""
        engine = self._engine
        if missing := self.infer_shapes():
            return f"allInputDimensionsSpecified. Input shapes are not set: {', '.join(missing)}"
        for name, sizes in self._shapes.items():
            if not self._contains(name, sizes, self._profile):
                allowed = f"range of profile {self._profile}, {self._range(name, self._profile)}"
                return f"profileMaxDims.d[i] >= dimensions.d[i]. Supplied dimension {_text(sizes)} for tensor {name} exceeds the {allowed}"
        for name in engine._model.inputs:
            if not self._addresses.get(name):
                advice = "Call setInputTensorAddress or setTensorAddress before enqueue/execute"
                return f"profileObliviousBindings != nullptr. Address is not set for input tensor {name}. {advice}"
        for name in engine._model.outputs:
            if not self._addresses.get(name) and name not in self._allocators:
                advice = "Call setOutputTensorAddress, setTensorAddress or setOutputAllocator before enqueue/execute"
                return f"profileObliviousBindings. Neither address or allocator is set for output tensor {name}. {advice}"
        if self._strategy.name == "USER_MANAGED" and self._scratch is None:
            return "device memory is set; a context with USER_MANAGED memory needs set_device_memory() before enqueue/execute"
        if self._scratch and self._scratch[1] < engine.get_device_memory_size_for_profile_v2(self._profile):
            return "the device memory is large enough for the active profile"
        if engine._missing:
            return f"the engine was refitted; its weights were stripped from the plan: {', '.join(sorted(engine._missing))}"
        return ""

    # ---- profiling

    profiler = kept("_profiler", "IProfiler")

    enqueue_emits_profile = kept("_emits_profile", "bool")

    def report_to_profiler(self) -> bool:
        """The layers of the last run; it must have come to its end."""
        if self._profiler is None or self._times is None:
            return self._complain("reportToProfiler", "a profiler is set and the context has run")
        for name, milliseconds in self._times:
            call_user("report_layer_time", self._profiler.report_layer_time, name, milliseconds)
        self._times = None
        return True

    def _fail(self, text: str) -> bool:
        gpu.current().note("rejected", "execute_async_v3", self._handle, text)
        report(self._engine._logger, "ERROR", f"IExecutionContext::enqueueV3: Error Code 1: Cuda Runtime ({text})")
        return False

    def _complain(self, call: str, condition: str) -> bool:
        gpu.current().note("rejected", call, self._handle, condition)
        text = f"Error Code 3: API Usage Error (Parameter check failed, condition: {condition}.)"
        report(self._engine._logger, "ERROR", f"IExecutionContext::{call}: {text}")
        return False


def _text(shape: Any) -> str:
    return f"[{','.join(str(size) for size in shape)}]"


def _prepare_run(context: Any, stream: int, captured: bool) -> Callable[[], None]:
    """The run as it is enqueued now: with the shapes, addresses and memory of this moment."""
    engine, shapes, addresses, profile = context._engine, dict(context._shapes), dict(context._addresses), context._profile
    allocators, scratch, device = dict(context._allocators), context._scratch, gpu.current()
    model = engine._model

    def run() -> None:
        if context._device_profile != profile and not captured:
            raise gpu.IllegalAccess(f"profile {profile} was set on another stream and has not arrived")
        if scratch:
            device.view(*scratch)[:] = 0xAA  # what lies there is lost
        feeds = {name: _tensor(device, addresses[name], shapes[name], model.dtypes[name]) for name in model.inputs}
        start = time.perf_counter()
        results = model.run({name: array.copy() for name, array in feeds.items()})
        share = (time.perf_counter() - start) * 1000 / len(model.nodes)  # onnxruntime tells only the sum
        context._times = [(node.name, share) for node in model.nodes]
        for name, array in results.items():
            address = addresses.get(name, 0)
            if name in allocators:
                address = _reallocate(allocators[name], name, address, array, stream)
            _tensor(device, address, array.shape, model.dtypes[name])[...] = array

    return run


def _tensor(device: gpu.Gpu, address: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """The tensor at an address of the device."""
    kind = numpy_type(dtype)
    size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    return device.view(address, size).view(kind).reshape(shape)


def _reallocate(allocator: Any, name: str, address: int, array: np.ndarray, stream: int) -> int:
    """Ask the user for memory and tell the shape, as TensorRT does before it returns from enqueueing."""
    if hasattr(allocator, "reallocate_output_async"):
        arguments = (name, address, array.nbytes, _ALIGNMENT, stream)
        found = call_user("reallocateOutputAsync", allocator.reallocate_output_async, *arguments)
    else:
        found = call_user("reallocateOutput", allocator.reallocate_output, name, address, array.nbytes, _ALIGNMENT)
    if not found:
        raise gpu.OutOfMemory(f"the output allocator gave no memory for {name}")
    call_user("notify_shape", allocator.notify_shape, name, allocator._trt.Dims(array.shape))
    return int(found)
