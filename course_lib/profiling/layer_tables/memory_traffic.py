"""Bytes that a network moves between memory and the chip: if every ONNX node were a kernel, and with the kernels of a real build.

A model of the traffic, not a measurement: every kernel reads each of its tensors from memory once, whole, and writes each result
once. Caches make the true number smaller; a kernel that reads its input again for every tile makes it larger.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from course_lib.engines.layers import BYTES_PER_NUMBER

if TYPE_CHECKING:
    import onnx

    from course_lib.engines import LayerTable, LayerTensor

# Operators that give a tensor another name or shape and touch none of its numbers.
_VIEWS = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout", "Shape", "Size"})


@dataclass(frozen=True)
class RoundTrip:
    """One kernel's round trip to memory.

    Attributes:
        name: name of the kernel or the node.
        operators: its operators, such as ``"Conv + Relu"``; empty for a kernel that the compiler added.
        reads: bytes of each activation that it reads, by the tensor's name.
        weights: bytes of constants that it reads.
        writes: bytes of each tensor that it writes.
        nodes: names of the ONNX nodes that it computes.
    """

    name: str
    operators: str
    reads: Mapping[str, int]
    weights: int
    writes: Mapping[str, int]
    nodes: tuple[str, ...] = ()

    @property
    def read_bytes(self) -> int:
        """Bytes of activations, without the weights."""
        return sum(self.reads.values())

    @property
    def written_bytes(self) -> int:
        """Bytes of all tensors that it writes."""
        return sum(self.writes.values())

    @property
    def total_bytes(self) -> int:
        """Bytes of activations and weights read and of tensors written."""
        return self.read_bytes + self.weights + self.written_bytes


@dataclass(frozen=True)
class Traffic:
    """All round trips of one inference in the order of execution."""

    round_trips: tuple[RoundTrip, ...]

    @property
    def read_bytes(self) -> int:
        """Bytes of activations, without the weights."""
        return sum(round_trip.read_bytes for round_trip in self.round_trips)

    @property
    def weights(self) -> int:
        """Bytes of constants."""
        return sum(round_trip.weights for round_trip in self.round_trips)

    @property
    def written_bytes(self) -> int:
        """Bytes of all tensors that the kernels write."""
        return sum(round_trip.written_bytes for round_trip in self.round_trips)

    @property
    def total_bytes(self) -> int:
        """Bytes of activations and weights read and of tensors written."""
        return self.read_bytes + self.weights + self.written_bytes

    @property
    def launches(self) -> str:
        """The number of round trips, in words."""
        return f"{len(self.round_trips)} round trip{'s' if len(self.round_trips) != 1 else ''}"

    def __str__(self) -> str:
        return f"{self.total_bytes / 1e6:.1f} MB in {self.launches}"


def node_traffic(model: onnx.ModelProto) -> Traffic:
    """The traffic if every ONNX node is its own kernel, as a framework runs a graph operator by operator.

    Views such as Reshape, and nodes that do not depend on the inputs, are left out because they move no data.

    Args:
        model: a model with fixed shapes, as ``export_onnx(..., dynamic_batch=False, batch=32)`` writes it.

    Raises:
        ValueError: the shape of a tensor is not known.
    """
    graph = _Graph(model)
    return Traffic(tuple(graph.round_trip(node) for node in model.graph.node if graph.is_kernel(node)))


def kernel_traffic(table: LayerTable) -> Traffic:
    """The traffic of the kernels of a plan, or of ONNX Runtime's optimized graph.

    Raises:
        ValueError: the table has no kernels, or a shape is dynamic, or a datatype unknown: build a model with fixed shapes.
    """
    if not table.kernels:
        raise ValueError("this table has no kernels to count: build with tensorrt or tensorrt_rtx, or use profile_onnxruntime")
    return Traffic(
        tuple(
            RoundTrip(
                name=kernel.name,
                operators=table.fused_operators(kernel),
                reads=_sizes(kernel.inputs, kernel.constants),
                weights=sum(map(_size, kernel.constants)),
                writes=_sizes(kernel.outputs),
                nodes=tuple(kernel.onnx_nodes),
            )
            for kernel in table.kernels
            if kernel.kind not in _VIEWS
        )
    )


def _sizes(tensors: Iterable[LayerTensor], without: Iterable[LayerTensor] = ()) -> dict[str, int]:
    constants = {tensor.name for tensor in without}
    return {tensor.name: _size(tensor) for tensor in tensors if tensor.name not in constants}


def _size(tensor: LayerTensor) -> int:
    if any(n < 0 for n in tensor.shape) or tensor.dtype not in BYTES_PER_NUMBER:
        raise ValueError(
            f"tensor {tensor.name!r} has shape {tensor.shape} and type {tensor.dtype or 'unknown'}: bytes can only be counted with "
            "fixed shapes, export the model with dynamic_batch=False"
        )
    return tensor.bytes


class _Graph:
    """The sizes of the tensors of a model, and which of them change with the input."""

    def __init__(self, model: onnx.ModelProto) -> None:
        import onnx

        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
        self._values = {
            value.name: value.type.tensor_type for value in (*inferred.value_info, *inferred.output, *inferred.input)
        }
        self._constants = {tensor.name: tensor for tensor in model.graph.initializer}
        self._nodes = model.graph.node
        self._inputs = {value.name for value in model.graph.input} - self._constants.keys()

    @cached_property
    def _changing(self) -> set[str]:
        """Tensors that depend on the numbers, not only on the shapes, of the inputs."""
        changing = set(self._inputs)
        for node in self._nodes:
            if node.op_type not in ("Shape", "Size") and not changing.isdisjoint(node.input):
                changing.update(filter(None, node.output))
        return changing

    def is_kernel(self, node: onnx.NodeProto) -> bool:
        return node.op_type not in _VIEWS and not self._changing.isdisjoint(node.input)

    def round_trip(self, node: onnx.NodeProto) -> RoundTrip:
        inputs = dict.fromkeys(filter(None, node.input))
        return RoundTrip(
            name=node.name,
            operators=node.op_type,
            reads={name: self._size(name) for name in inputs if name in self._changing},
            weights=sum(self._size(name) for name in inputs if name not in self._changing),
            writes={name: self._size(name) for name in node.output if name},
            nodes=(node.name,),
        )

    def _size(self, name: str) -> int:
        from onnx.helper import tensor_dtype_to_np_dtype

        if name in self._constants:
            constant = self._constants[name]
            return math.prod(constant.dims) * tensor_dtype_to_np_dtype(constant.data_type).itemsize
        known = self._values.get(name)
        if known is None or not known.HasField("shape") or not all(d.HasField("dim_value") for d in known.shape.dim):
            raise ValueError(
                f"the shape of tensor {name!r} is not known: export the model with dynamic_batch=False, or infer its shapes"
            )
        return math.prod(d.dim_value for d in known.shape.dim) * tensor_dtype_to_np_dtype(known.elem_type).itemsize
