"""The model inside a plan: an ONNX graph that onnxruntime runs, asked for what TensorRT knows about a network."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from course_lib._util.plain_text import reason

DTYPES = {1: "FLOAT", 2: "UINT8", 3: "INT8", 6: "INT32", 7: "INT64", 9: "BOOL", 10: "HALF", 16: "BF16", 17: "FP8"}
_DATA_DEPENDENT = {"NonZero", "NonMaxSuppression", "Unique", "Compress"}  # the shape of their output depends on values


class OnnxModel:
    """A graph with the shapes and types of all its tensors.

    Args:
        data: a serialized ONNX model.
    """

    def __init__(self, data: bytes) -> None:
        import onnx

        self.proto = onnx.load_model_from_string(data)
        graph = self.proto.graph
        self.initializers = {tensor.name: tensor for tensor in graph.initializer}
        inferred = onnx.shape_inference.infer_shapes(self.proto, data_prop=True).graph
        described = {info.name: info for info in (*inferred.value_info, *inferred.output, *inferred.input)}
        self.shapes = {name: _shape(info) for name, info in described.items()}
        self.dtypes = {name: DTYPES.get(info.type.tensor_type.elem_type, "FLOAT") for name, info in described.items()}
        for name, tensor in self.initializers.items():
            self.shapes[name], self.dtypes[name] = tuple(tensor.dims), DTYPES.get(tensor.data_type, "FLOAT")
        self.inputs = tuple(info.name for info in graph.input if info.name not in self.initializers)
        self.outputs = tuple(info.name for info in graph.output)
        self.nodes = tuple(node for node in graph.node if node.op_type != "Constant")
        self._output_shapes: dict[Any, dict[str, tuple[int, ...]]] = {}

    def serialized(self) -> bytes:
        """The model as it is now, with replaced weights."""
        data: bytes = self.proto.SerializeToString()
        return data

    @cached_property
    def _session(self) -> Any:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 4, 1
        return onnxruntime.InferenceSession(self.serialized(), options, providers=["CPUExecutionProvider"])

    def check(self) -> str:
        """Why onnxruntime rejects the graph; empty if it takes it."""
        try:
            self._session  # noqa: B018
        except Exception as rejection:
            return reason(rejection)
        return ""

    def run(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """All outputs by name."""
        return dict(zip(self.outputs, self._session.run(list(self.outputs), feeds), strict=True))

    # ---- shapes

    @cached_property
    def data_dependent(self) -> frozenset[str]:
        """Outputs with a dimension that depends on values."""
        tainted: set[str] = set()
        for node in self.nodes:
            if node.op_type in _DATA_DEPENDENT or tainted.intersection(node.input):
                tainted.update(node.output)
        return frozenset(name for name in self.outputs if name in tainted and self._varies(name))

    def _varies(self, name: str) -> bool:
        """Whether values change the shape: a sum over what was found has one shape whatever was found."""
        shapes = {name: tuple(2 if n < 0 else n for n in self.shapes[name]) for name in self.inputs}
        return self._dry_run(shapes, np.zeros)[name] != self._dry_run(shapes, np.ones)[name]

    def output_shapes(self, inputs: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        """Shapes of the outputs for shapes of the inputs; -1 where a dimension depends on data."""
        key = tuple(sorted(inputs.items()))
        if key not in self._output_shapes:
            found = self._dry_run(inputs, np.zeros)
            for name in self.data_dependent:
                most = self._dry_run(inputs, np.ones)[name]
                found[name] = tuple(-1 if a != b else a for a, b in zip(found[name], most, strict=True))
            self._output_shapes[key] = found
        return self._output_shapes[key]

    def largest_outputs(self, inputs: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        """Shapes of the outputs when everything that could be found is found."""
        return self._dry_run(inputs, np.ones)

    def _dry_run(self, inputs: dict[str, tuple[int, ...]], fill: Any) -> dict[str, tuple[int, ...]]:
        feeds = {name: fill(shape, numpy_type(self.dtypes[name])) for name, shape in inputs.items()}
        return {name: array.shape for name, array in self.run(feeds).items()}

    # ---- memory and weights

    def activation_bytes(self, inputs: dict[str, tuple[int, ...]]) -> int:
        """Bytes of the tensors between the nodes, each counted once."""
        import onnx

        clone = onnx.ModelProto()
        clone.CopyFrom(self.proto)
        for info in clone.graph.input:
            if info.name in inputs:
                for dimension, size in zip(info.type.tensor_type.shape.dim, inputs[info.name], strict=True):
                    dimension.dim_value = size
        inner = onnx.shape_inference.infer_shapes(clone, data_prop=True).graph.value_info
        sizes = [abs(int(np.prod(_shape(info), dtype=np.int64))) * 4 for info in inner]
        return sum(-(-size // 256) * 256 for size in sizes) + 256

    def refittable(self) -> tuple[str, ...]:
        """Weights that may be replaced: numbers, not the shapes that some nodes take."""
        return tuple(name for name in self.initializers if self.dtypes[name] in ("FLOAT", "HALF", "BF16", "INT8"))

    def weight(self, name: str) -> np.ndarray:
        """The values of an initializer."""
        from onnx import numpy_helper

        return numpy_helper.to_array(self.initializers[name])

    def weight_bytes(self) -> int:
        """Bytes of all initializers."""
        return sum(self.weight(name).nbytes for name in self.initializers)

    def replace(self, weights: dict[str, np.ndarray]) -> None:
        """New values for initializers, from the next run on."""
        from onnx import numpy_helper

        for name, values in weights.items():
            old = self.initializers[name]
            old.CopyFrom(numpy_helper.from_array(values.reshape(tuple(old.dims)), name))
        self.__dict__.pop("_session", None)


def numpy_type(dtype: str) -> Any:
    """The numpy type of a TensorRT datatype's name; onnxruntime takes no others from numpy."""
    names = {"FLOAT": "float32", "HALF": "float16"}
    return np.dtype(names.get(dtype, dtype.lower()))


def _shape(info: Any) -> tuple[int, ...]:
    dimensions = info.type.tensor_type.shape.dim
    return tuple(d.dim_value if d.HasField("dim_value") else -1 for d in dimensions)
