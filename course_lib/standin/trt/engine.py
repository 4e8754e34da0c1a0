"""The stand-in's engine: its tensors, profiles and memory, its layers as JSON, and its weights replaced."""

# ruff: noqa: D101, D102  (NVIDIA documents these classes and calls)

from __future__ import annotations

import json
import weakref
from typing import Any, SupportsInt

import numpy as np

from course_lib.standin import gpu
from course_lib.standin.conforming import Template
from course_lib.standin.onnx_model import DTYPES, OnnxModel, numpy_type
from course_lib.standin.plan_file import Header, write_plan
from course_lib.standin.trt.network import layer_type
from course_lib.standin.trt.values import report

_DATATYPE_WORDS = {
    "FLOAT": "Float", "HALF": "Half", "BF16": "BFloat16", "INT8": "Int8", "INT32": "Int32", "INT64": "Int64", "BOOL": "Bool",
    "UINT8": "UInt8", "FP8": "FP8",
}  # fmt: skip


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


class EngineInspector(Template):
    """Layers as JSON, with the keys of TensorRT 10 and 11."""

    def _setup(self, engine: Any) -> None:
        self._engine = engine

    def get_engine_information(self, format: Any) -> str:
        model = self._engine._model
        layers = [self._layer(index) for index in range(len(model.nodes))]
        if format == self._trt.LayerInformationFormat.ONELINE:
            return "\n".join(str(layer) for layer in layers)
        return json.dumps({"Layers": layers, "Bindings": [*model.inputs, *model.outputs]})

    def _layer(self, index: int) -> Any:
        """All that is known with detailed verbosity, the name without, nothing if even that was switched off."""
        model, verbosity = self._engine._model, self._engine._header.verbosity
        node = model.nodes[index]
        if verbosity != "DETAILED":
            return node.name if verbosity == "LAYER_NAMES_ONLY" else ""
        described: dict[str, Any] = {
            "Name": node.name,
            "LayerType": layer_type(node.op_type).title().replace("_", ""),
            "Inputs": [self._tensor(name) for name in node.input if name and name not in model.initializers],
            "Outputs": [self._tensor(name) for name in node.output],
            "TacticName": f"onnxruntime_{node.op_type}",
            "StreamId": 0,
            "Metadata": f"[ONNX Layer: {node.name}]",
        }
        if weights := [name for name in node.input if name in model.initializers]:
            tensor = model.initializers[weights[0]]
            word = _DATATYPE_WORDS[DTYPES.get(tensor.data_type, "FLOAT")]
            described["Weights"] = {"Type": word, "Count": int(np.prod(tensor.dims, dtype=np.int64))}
        return described

    def _tensor(self, name: str) -> dict[str, Any]:
        model = self._engine._model
        word = _DATATYPE_WORDS[model.dtypes.get(name, "FLOAT")]
        shape = list(model.shapes.get(name, ()))
        return {"Name": name, "Dimensions": shape, "Format": "(Linear) Row major linear format", "Datatype": word}


class Refitter(Template):
    """It replaces the initializers of the ONNX model."""

    def __init__(self, engine: Any, logger: Any) -> None:
        if not engine.refittable:
            text = "Error Code 3: API Usage Error (Parameter check failed, condition: e.isRefittable().)"
            report(logger, "ERROR", f"createInferRefitter_INTERNAL: {text}")
            raise TypeError("pybind11::init(): factory function returned nullptr")
        self._engine, self._logger = engine, logger
        self._given: dict[str, Any] = {}

    def get_all_weights(self) -> list[str]:
        return list(self._engine._header.refittable)

    def get_missing_weights(self) -> list[str]:
        """Those that were stripped from the plan and have not come yet."""
        return sorted(self._engine._missing - self._given.keys())

    def set_named_weights(self, name: str, weights: Any, location: Any = None) -> bool:
        model = self._engine._model
        if name not in self._engine._header.refittable:
            return self._reject("setNamedWeights", f"the engine has refittable weights of the name {name}")
        expected = model.weight(name)
        if (weights.dtype.name, weights.size) != (model.dtypes[name], expected.size):
            found = f"{weights.size} of {weights.dtype.name} for {expected.size} of {model.dtypes[name]}"
            return self._reject("setNamedWeights", f"count and type of the weights of {name} are as they were: {found}")
        self._given[name] = weights
        return True

    def refit_cuda_engine(self) -> bool:
        if missing := self.get_missing_weights():
            return self._reject("refitCudaEngine", f"all weights are given; missing are {', '.join(missing)}")
        model = self._engine._model
        types = {name: numpy_type(model.dtypes[name]) for name in self._given}
        model.replace({name: np.array(weights.numpy(), types[name]) for name, weights in self._given.items()})
        self._engine._missing.clear()
        self._given.clear()
        return True

    def _reject(self, call: str, condition: str) -> bool:
        text = f"Error Code 3: API Usage Error (Parameter check failed, condition: {condition}.)"
        report(self._logger, "ERROR", f"IRefitter::{call}: {text}")
        return False
