"""The stand-in's refitter, which replaces the initializers of the ONNX model."""

# ruff: noqa: D101, D102  (NVIDIA documents these classes and calls)

from __future__ import annotations

from typing import Any

import numpy as np

from course_lib.standin.conforming import Template
from course_lib.standin.onnx_model import numpy_type
from course_lib.standin.trt.values import report


class Refitter(Template):
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
