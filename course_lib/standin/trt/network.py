"""The stand-in's network, which is an ONNX graph, and the parser that fills it."""

# ruff: noqa: D101, D102  (NVIDIA documents these classes and calls)

from __future__ import annotations

from pathlib import Path
from typing import Any

from course_lib.standin.conforming import Template, kept
from course_lib.standin.onnx_model import OnnxModel
from course_lib.standin.trt.values import report

_LAYER_TYPES = {
    "Conv": "CONVOLUTION", "ConvTranspose": "DECONVOLUTION", "Gemm": "MATRIX_MULTIPLY", "MatMul": "MATRIX_MULTIPLY",
    "Relu": "ACTIVATION", "Sigmoid": "ACTIVATION", "Tanh": "ACTIVATION", "Clip": "ACTIVATION", "MaxPool": "POOLING",
    "AveragePool": "POOLING", "GlobalAveragePool": "REDUCE", "ReduceMean": "REDUCE", "ReduceSum": "REDUCE", "Softmax": "SOFTMAX",
    "Concat": "CONCATENATION", "Reshape": "SHUFFLE", "Transpose": "SHUFFLE", "Flatten": "SHUFFLE", "Cast": "CAST",
    "QuantizeLinear": "QUANTIZE", "DequantizeLinear": "DEQUANTIZE", "Gather": "GATHER", "Slice": "SLICE", "Shape": "SHAPE",
    "NonZero": "NON_ZERO", "NonMaxSuppression": "NMS", "LayerNormalization": "NORMALIZATION", "Identity": "IDENTITY",
    "TopK": "TOPK", "Where": "SELECT", "Sqrt": "UNARY", "Exp": "UNARY", "Erf": "UNARY", "Neg": "UNARY",
}  # fmt: skip


def layer_type(operator: str) -> str:
    """Name of the `LayerType` of an ONNX operator."""
    return _LAYER_TYPES.get(operator, "ELEMENTWISE")


class ITensor(Template):
    def _setup(self, model: OnnxModel, name: str) -> None:
        self._model, self._name = model, name

    @property
    def name(self) -> str:
        return self._name

    @property
    def shape(self) -> Any:
        return self._trt.Dims(self._model.shapes.get(self._name, ()))

    @property
    def dtype(self) -> Any:
        return getattr(self._trt.DataType, self._model.dtypes.get(self._name, "FLOAT"))

    @property
    def location(self) -> Any:
        return self._trt.TensorLocation.DEVICE

    @property
    def is_shape_tensor(self) -> bool:
        return False


class ILayer(Template):
    def _setup(self, model: OnnxModel, index: int) -> None:
        self._model, self._node = model, model.nodes[index]
        self._inputs = [name for name in self._node.input if name and name not in model.initializers]
        self._name = self._node.name or f"(Unnamed Layer* {index}) [{layer_type(self._node.op_type).title()}]"
        self._metadata = f"[ONNX Layer: {self._node.name}]"

    name = kept("_name", "str")

    metadata = kept("_metadata", "str")

    @property
    def type(self) -> Any:
        return getattr(self._trt.LayerType, layer_type(self._node.op_type))

    @property
    def num_inputs(self) -> int:
        return len(self._inputs)

    @property
    def num_outputs(self) -> int:
        return len(self._node.output)

    def get_input(self, index: int) -> Any:
        return self._tensor(self._inputs, index)

    def get_output(self, index: int) -> Any:
        return self._tensor(self._node.output, index)

    def _tensor(self, names: Any, index: int) -> Any:
        return self._trt.ITensor._make(self._model, names[index]) if 0 <= index < len(names) else None


class INetworkDefinition(Template):
    def _setup(self, logger: Any, flags: int) -> None:
        self._logger, self._flags = logger, flags
        self._model: OnnxModel | None = None
        self._name = "Unnamed Network 0"

    name = kept("_name", "str")

    @property
    def flags(self) -> int:
        return self._flags

    @property
    def num_inputs(self) -> int:
        return len(self._model.inputs) if self._model else 0

    @property
    def num_outputs(self) -> int:
        return len(self._model.outputs) if self._model else 0

    @property
    def num_layers(self) -> int:
        return len(self._model.nodes) if self._model else 0

    def get_input(self, index: int) -> Any:
        return self._tensor("getInput", self._model.inputs if self._model else (), index)

    def get_output(self, index: int) -> Any:
        return self._tensor("getOutput", self._model.outputs if self._model else (), index)

    def get_layer(self, index: int) -> Any:
        if 0 <= index < self.num_layers:
            return self._trt.ILayer._make(self._model, index)
        report(self._logger, "ERROR", f"Unexpected exception: no layer {index}")
        return None

    def _tensor(self, call: str, names: tuple[str, ...], index: int) -> Any:
        if 0 <= index < len(names):
            return self._trt.ITensor._make(self._model, names[index])
        text = f"(Parameter check failed, condition: (0) <= (index) && (index) < {len(names)})"
        report(self._logger, "ERROR", f"INetworkDefinition::{call}: Error Code 3: API Usage Error {text}")
        return None


class ParserError(Template):
    def _setup(self, code: str, desc: str, node: Any = None, index: int = -1) -> None:
        self._code, self._desc, self._node, self._index = code, desc, node, index

    def code(self) -> Any:
        return getattr(self._trt.ErrorCode, self._code)

    def desc(self) -> str:
        return self._desc

    def file(self) -> str:
        return "ModelImporter.cpp"

    def func(self) -> str:
        return "parse"

    def line(self) -> int:
        return 1

    def node(self) -> int:
        return self._index

    def node_name(self) -> str:
        return self._node.name if self._node is not None else ""

    def node_operator(self) -> str:
        return self._node.op_type if self._node is not None else ""


class OnnxParser(Template):
    def __init__(self, network: Any, logger: Any) -> None:
        self._network, self._logger = network, logger
        self._errors: list[Any] = []

    @property
    def num_errors(self) -> int:
        return len(self._errors)

    def get_error(self, index: int) -> Any:
        return self._errors[index] if 0 <= index < len(self._errors) else None

    def parse_from_file(self, model: str) -> bool:
        import onnx

        if not Path(model).is_file():
            return self._reject("INVALID_VALUE", f"Input file cannot be found, or is not a regular file: {model}")
        try:
            return self._take(onnx.load_model(model))
        except Exception:
            return self._reject("MODEL_DESERIALIZE_FAILED", "Failed to parse the ONNX model.")

    def parse(self, model: Any, path: str | None = None) -> bool:
        import onnx

        try:
            proto = onnx.load_model_from_string(bytes(model))
        except Exception:
            return self._reject("MODEL_DESERIALIZE_FAILED", "Failed to parse the ONNX model.")
        return self._take(proto)

    def _take(self, proto: Any) -> bool:
        import onnx

        if self._network._model is not None:
            report(self._logger, "ERROR", "ModelImporter.cpp:1170: Parse was called with a non-empty network definition")
            return False
        if not proto.graph.output:
            return self._reject("MODEL_DESERIALIZE_FAILED", "Failed to parse the ONNX model.")
        for index, node in enumerate(proto.graph.node):
            if not onnx.defs.has(node.op_type, node.domain):
                text = 'creator && "Plugin not found, are the plugin name, version, and namespace correct?"'
                return self._reject("INVALID_NODE", text, node, index)
        self._network._model = OnnxModel(proto.SerializeToString())
        return True

    def _reject(self, code: str, text: str, node: Any = None, index: int = -1) -> bool:
        self._errors.append(self._trt.ParserError._make(code, text, node, index))
        report(self._logger, "ERROR", f"In node {index}: {code}: {text}")
        return False
