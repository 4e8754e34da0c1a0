"""The stand-in's inspector: layers as JSON, with the keys of TensorRT 10 and 11."""

# ruff: noqa: D101, D102  (NVIDIA documents these classes and calls)

from __future__ import annotations

import json
from typing import Any

import numpy as np

from course_lib.standin.conforming import Template
from course_lib.standin.onnx_model import DTYPES
from course_lib.standin.trt.network import layer_type

_DATATYPE_WORDS = {
    "FLOAT": "Float", "HALF": "Half", "BF16": "BFloat16", "INT8": "Int8", "INT32": "Int32", "INT64": "Int64", "BOOL": "Bool",
    "UINT8": "UInt8", "FP8": "FP8",
}  # fmt: skip


class EngineInspector(Template):
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
