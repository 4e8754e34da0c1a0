"""Datatypes and formats of kernels in short texts that can be compared, and the layers of an engine that multiply integers."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

from course_lib.engines.layers import Layer, LayerTable, dtype_name

_OF_INDICES = {"Int32", "Int64", "Bool"}
_WEIGHTED = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})


def joined(dtypes: Collection[str]) -> str:
    """The types as text, such as ``"FP32 + INT8"``; ``""`` for none. Types of shapes and indices are left out if there are others."""
    known = {dtype for dtype in dtypes if dtype}
    return " + ".join(sorted(map(dtype_name, known - _OF_INDICES or known)))


def traits(kernels: Iterable[Layer]) -> dict[str, str]:
    """The combined properties of kernels: the datatypes of "reads", "weights" and "writes", and the "format" of their outputs.

    ``""`` if the compiler does not report it.
    """
    kernels = list(kernels)
    return {
        "reads": joined({tensor.dtype for kernel in kernels for tensor in kernel.inputs}),
        "weights": joined({tensor.dtype for kernel in kernels for tensor in kernel.weights}),
        "writes": joined({tensor.dtype for kernel in kernels for tensor in kernel.outputs}),
        "format": ", ".join(sorted({tensor.format for kernel in kernels for tensor in kernel.outputs if tensor.format})),
    }


def int8_layers(table: LayerTable) -> tuple[list[str], list[str]]:
    """The layers that multiply by weights, in order: first those in INT8, then those in a float type.

    A layer has the name of its ONNX node, so a convolution counts once even if the compiler splits it into several kernels. If
    the table was made without the graph, it has the name of its kernel. With a graph, names of kernels do not count: a submission
    can give a node the name of another node's kernel.
    """
    weighted = [name for name, operator in table.operators.items() if operator in _WEIGHTED]
    if not table.operators:
        weighted = [kernel.name for kernel in table.kernels if kernel.weights]
    integer = {name for kernel in table.kernels if _on_integers(kernel) for name in _names(kernel, table)}
    return [name for name in weighted if name in integer], [name for name in weighted if name not in integer]


def weights_in_layers(table: LayerTable) -> int:
    """The part of `weights` in the layers of `int8_layers`. Elsewhere, such as in an Einsum, they multiply without being counted."""
    layers = {name for names in int8_layers(table) for name in names}
    held = [kernel for kernel in table.kernels if _on_integers(kernel) or layers.intersection(_names(kernel, table))]
    return weights(LayerTable(tuple(held)))


def weights(table: LayerTable) -> int:
    """Number of weights in the kernels, with scales and biases. It hardly depends on how a network is quantized."""
    return sum(math.prod(tensor.shape) for kernel in table.kernels for tensor in kernel.weights)


def _names(kernel: Layer, table: LayerTable) -> tuple[str, ...]:
    """The names of the layers that a kernel computes, as `int8_layers` counts them."""
    return kernel.onnx_nodes if table.operators else (kernel.name,)


def _on_integers(kernel: Layer) -> bool:
    """Whether both factors are INT8. TensorRT 8.6 does not report the type of activations with dynamic shapes; then the weight decides.

    The weight is the largest constant. TensorRT 10 and 11 list no constants for matrix multiplications; then the activations decide.
    A generated kernel (kgen) multiplies single numbers: it expands weights, rounds, or ends a float layer, and then it has that
    layer's name.
    """
    if kernel.kind in ("kgen", "Reformat") or not kernel.inputs:
        return False
    reads = {tensor.dtype for tensor in kernel.inputs if tensor.dtype}
    if not kernel.constants:
        return reads == {"Int8"}
    if not kernel.weights:
        return False
    weight = max(kernel.weights, key=lambda tensor: math.prod(tensor.shape))
    return weight.dtype == "Int8" and ("Int8" in reads or not reads)
