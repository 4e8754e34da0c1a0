"""The stand-in's engine: its tensors, profiles and memory."""

# ruff: noqa: D101, D102  (NVIDIA documents these classes and calls)

from __future__ import annotations

import weakref
from typing import Any, SupportsInt

from course_lib.standin import gpu
from course_lib.standin.conforming import Template
from course_lib.standin.onnx_model import OnnxModel
from course_lib.standin.plan_file import Header, write_plan
from course_lib.standin.trt.values import report


class ICudaEngine(Template):
    def _setup(self, logger: Any, header: Header, model: OnnxModel, plan_digest: str) -> None:
        self._logger, self._header, self._model = logger, header, model
        self._names = (*model.inputs, *model.outputs)
        self._contexts: weakref.WeakSet[Any] = weakref.WeakSet()
        self._budget = self.streamable_weights_size
        self._missing = set(header.refittable) if "STRIP_PLAN" in header.flags else set()
        self._on_device = self._reserve(model.weight_bytes())
        device = gpu.current()
        self._handle = device.new_handle()
        device.note("engine", self._handle, plan_digest)
        gpu.when_gone(self, device.note, "engine_gone", self._handle)

    def _reserve(self, size: int) -> Any:
        """Count device memory for as long as this engine lives."""
        device = gpu.current()
        device.reserve(size)
        return weakref.finalize(self, device.release, size)

    # ---- tensors

    @property
    def num_io_tensors(self) -> int:
        return len(self._names)

    def get_tensor_name(self, index: int) -> str | None:
        if 0 <= index < len(self._names):
            return self._names[index]
        self._complain("getIOTensorName", f"(0) <= (index) && (index) < {len(self._names)}")
        return None

    def __getitem__(self, index: int) -> str:
        return self._names[index]

    def get_tensor_mode(self, name: str) -> Any:
        modes = self._trt.TensorIOMode
        return modes.INPUT if name in self._model.inputs else modes.OUTPUT if name in self._names else modes.NONE

    def get_tensor_dtype(self, name: str) -> Any:
        return getattr(self._trt.DataType, self._model.dtypes[name] if self._knows("getTensorDataType", name) else "FLOAT")

    def get_tensor_shape(self, name: str) -> Any:
        return self._trt.Dims(self._model.shapes[name] if self._knows("getTensorShape", name) else ())

    def get_tensor_location(self, name: str) -> Any:
        return self._trt.TensorLocation.DEVICE

    @property
    def num_optimization_profiles(self) -> int:
        return len(self._header.profiles)

    def get_tensor_profile_shape(self, name: str, profile_index: int) -> list[Any]:
        if name not in self._model.inputs or not 0 <= profile_index < len(self._header.profiles):
            self._complain("getProfileShape", "profileIndex < getNbOptimizationProfiles() and an input tensor")
            return [self._trt.Dims() for _ in range(3)]
        return [self._trt.Dims(shape) for shape in self._ranges(name, profile_index)]

    def _ranges(self, name: str, profile: int) -> list[list[int]]:
        """Min, opt and max; a fixed shape is all three."""
        return self._header.profiles[profile].get(name) or [list(self._model.shapes[name])] * 3

    # ---- what it is

    @property
    def name(self) -> str:
        return self._header.name

    @property
    def num_layers(self) -> int:
        return len(self._model.nodes)

    @property
    def refittable(self) -> bool:
        return bool({"REFIT", "REFIT_IDENTICAL", "REFIT_INDIVIDUAL"} & set(self._header.flags))

    def serialize(self) -> Any:
        return self._trt.IHostMemory(write_plan(self._header, self._model.serialized()))

    def create_engine_inspector(self) -> Any:
        return self._trt.EngineInspector._make(self)

    # ---- memory

    def get_device_memory_size_for_profile_v2(self, profile_index: int) -> int:
        largest = {name: tuple(self._ranges(name, profile_index)[2]) for name in self._model.inputs}
        return self._model.activation_bytes(largest) + self.weight_streaming_scratch_memory_size

    @property
    def device_memory_size_v2(self) -> int:
        return max(self.get_device_memory_size_for_profile_v2(index) for index in range(self.num_optimization_profiles))

    @property
    def streamable_weights_size(self) -> int:
        return self._model.weight_bytes() if "WEIGHT_STREAMING" in self._header.flags else 0

    @property
    def weight_streaming_budget_v2(self) -> int:
        return self._budget

    @weight_streaming_budget_v2.setter
    def weight_streaming_budget_v2(self, value: SupportsInt) -> None:
        """The real one returns False, which an assignment drops: only the log tells."""
        if not self.streamable_weights_size:
            self._complain("setWeightStreamingBudgetV2", "the engine was built with BuilderFlag.WEIGHT_STREAMING")
        elif len(self._contexts):
            self._complain(
                "setWeightStreamingBudgetV2", "no active IExecutionContext; the budget cannot change while one exists"
            )
        elif int(value) < 0:
            self._complain("setWeightStreamingBudgetV2", "gpuMemoryBudget >= 0")
        else:
            self._budget = min(int(value), self.streamable_weights_size)
            self._on_device()
            self._on_device = self._reserve(self._budget)

    @property
    def weight_streaming_scratch_memory_size(self) -> int:
        if self._budget >= self.streamable_weights_size:
            return 0
        return 2 * max(self._model.weight(name).nbytes for name in self._model.initializers)

    def create_execution_context(self, strategy: Any = None) -> Any:
        kinds = self._trt.ExecutionContextAllocationStrategy
        return self._create(strategy if strategy is not None else kinds.STATIC)

    def create_execution_context_without_device_memory(self) -> Any:
        return self._create(self._trt.ExecutionContextAllocationStrategy.USER_MANAGED)

    def _create(self, strategy: Any) -> Any:
        try:
            context = self._trt.IExecutionContext._make(self, strategy)
        except gpu.OutOfMemory:
            text = f"Error Code 2: OutOfMemory (Requested size was {self.device_memory_size_v2} bytes.)"
            report(self._logger, "ERROR", f"IExecutionContext::IExecutionContext: {text}")
            return None
        self._contexts.add(context)
        return context

    def _knows(self, call: str, name: str) -> bool:
        if name not in self._names:
            gpu.current().note("rejected", call, 0, f"the engine has no tensor {name}")
            self._complain(call, f"the engine has an I/O tensor of the name {name}")
        return name in self._names

    def _complain(self, call: str, condition: str) -> None:
        text = f"Error Code 3: API Usage Error (Parameter check failed, condition: {condition}.)"
        report(self._logger, "ERROR", f"ICudaEngine::{call}: {text}")
