"""The layers of an engine that multiply integers, read from its layer table."""

from __future__ import annotations

import math

from course_lib.engines import Layer, LayerTable

_WEIGHTED = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})


def int8_layers(table: LayerTable) -> tuple[list[str], list[str]]:
    """The layers that multiply by weights, in order: first those in INT8, then those in a float type.

    A layer has the name of its ONNX node, so a convolution counts once even if the compiler splits it into several kernels. If
    the table was made without the graph, it has the name of its kernel. So has a float kernel that holds a matrix although none of
    its nodes is a convolution or a matrix product, such as an Einsum.
    """
    weighted = [name for name, operator in table.operators.items() if operator in _WEIGHTED]
    if not table.operators:
        weighted = [kernel.name for kernel in table.kernels if kernel.weights]
    integer = {name for kernel in table.kernels if _on_integers(kernel) for name in (kernel.name, *kernel.onnx_nodes)}
    other = [kernel.name for kernel in table.kernels if table.operators and _is_float_product(kernel, table)]
    return [name for name in weighted if name in integer], [name for name in weighted if name not in integer] + other


def weights(table: LayerTable) -> int:
    """Number of weights in the kernels, with scales and biases. It hardly depends on how a network is quantized."""
    return sum(math.prod(tensor.shape) for kernel in table.kernels for tensor in kernel.weights)


def _is_float_product(kernel: Layer, table: LayerTable) -> bool:
    """Whether a kernel multiplies by a matrix of its own in a float type, and no node of it says so. A bias has one dimension."""
    matrices = [tensor for tensor in kernel.weights if sum(n > 1 for n in tensor.shape) > 1 and tensor.dtype != "Int8"]
    return bool(matrices) and not any(table.operators.get(node) in _WEIGHTED for node in kernel.onnx_nodes)


def _on_integers(kernel: Layer) -> bool:
    """Whether both factors are INT8. TensorRT 8.6 does not report the type of activations with dynamic shapes; then the weight decides."""
    reads = {tensor.dtype for tensor in kernel.inputs if tensor.dtype}
    return "Int8" in {tensor.dtype for tensor in kernel.weights} and ("Int8" in reads or not reads)
