"""Datatypes and formats of kernels in short texts that can be compared."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from course_lib.engines.layers import dtype_name

if TYPE_CHECKING:
    from course_lib.engines import Layer

_OF_INDICES = {"Int32", "Int64", "Bool"}


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
