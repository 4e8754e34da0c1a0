"""Task 4 of lab 14: what the compiler makes of the stored weights, from the layer table of its plan.

The size of the plan of so small a decoder says little, because most of it are kernels: about 2.2 MB in FP16, and they do not grow
with the network. So the layer table is judged: which kernel reads which weight, and in which type it is stored there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from course_lib.engines import LayerTable, split_target
from course_lib.errors import ExaminerFault
from course_lib.labs.framework.criteria import ALL, HALF, Criterion
from course_lib.labs.framework.examination import Examiner
from course_lib.labs.lab14_four_bits.graph_file import MODEL, product_of, serialized
from course_lib.labs.lab14_four_bits.network import LENGTH, PRODUCTS, WEIGHTS
from course_lib.labs.lab14_four_bits.stored import Fp8, Int4, Stored
from course_lib.recipe import Profile, Recipe

# TensorRT 8.6 has none of these formats. TensorRT for RTX compiles on any machine, for a GPU that need not be there.
PROVER = "tensorrt_rtx"
RECIPE = Recipe(
    precision="fp16",
    targets=("sm89",),
    profiles=(Profile(tokens={"min": (1, 1), "opt": (1, 128), "max": (1, LENGTH)}),),
)
_BITS = {"Int4": 4, "FP8": 8, "Half": 16, "Float": 32}  # of a type, as layer tables write it
FULL_PRODUCTS, HALF_PRODUCTS = len(PRODUCTS), 12


@dataclass(frozen=True)
class Kernels:
    """What a layer table says about the sixteen products.

    Attributes:
        as_stored: products whose own kernel reads the weight in the type in which the graph stores it.
        expanding: products whose weight another kernel, which reads constants only, expands in each call.
        bits: constants of all these kernels, in bits per weight of the products.
    """

    as_stored: tuple[str, ...]
    expanding: tuple[str, ...]
    bits: float

    @classmethod
    def of(cls, table: LayerTable, stored: Mapping[str, Stored]) -> Kernels:
        """Read a layer table."""
        as_stored, expanding, bits = set(), set(), 0
        for kernel in table.kernels:
            products = {product_of(node) for node in kernel.onnx_nodes} - {""}
            if not products:
                continue
            bits += sum(_BITS.get(tensor.dtype, 32) * math.prod(tensor.shape) for tensor in kernel.weights)
            if not kernel.inputs:
                expanding |= products
                continue
            held = {(tensor.dtype, math.prod(tensor.shape)) for tensor in kernel.weights}
            multiplied = {product_of(node) for node in kernel.onnx_nodes if node.endswith("/MatMul")} - {""}
            as_stored |= {name for name in multiplied if (_type(stored[name]), math.prod(PRODUCTS[name])) in held}
        return cls(tuple(sorted(as_stored - expanding)), tuple(sorted(expanding)), bits / WEIGHTS)

    def criteria(self, full_bits: float, half_bits: float) -> tuple[list[Criterion], list[Criterion]]:
        """For all points, and for half of them."""
        return self._criteria(FULL_PRODUCTS, full_bits, ALL), self._criteria(HALF_PRODUCTS, half_bits, HALF)

    def _criteria(self, products: int, bits: float, needed_for: str) -> list[Criterion]:
        found, total = len(self.as_stored), len(PRODUCTS)
        return [
            Criterion(
                "products whose kernel reads the weight as it is stored",
                f"{found} of {total}",
                f"at least {products}",
                found >= products,
                needed_for,
            ),
            Criterion(
                "constants of these kernels, in bits per weight",
                f"{self.bits:.2f}",
                f"at most {bits:g}",
                self.bits <= bits,
                needed_for,
            ),
        ]


def compiled(stored: Mapping[str, Stored], examiner: Examiner) -> Kernels:
    """Compile the course's own graph with these weights.

    Raises:
        BuildError: the builder rejects it.
        ExaminerFault: its layer table does not show the products.
    """
    builder = examiner.builder if split_target(examiner.builder)[0] == PROVER else PROVER
    with TemporaryDirectory() as folder:
        path = Path(folder, MODEL)
        path.write_bytes(serialized(stored))
        table = replace(examiner, builder=builder).build(path, RECIPE).layers
    shown = {product_of(node) for kernel in table.kernels for node in kernel.onnx_nodes}
    if not set(PRODUCTS) <= shown:
        raise ExaminerFault(f"{PROVER} does not show which kernels compute the products")
    return Kernels.of(table, stored)


def _type(one: Stored) -> str:
    return "Int4" if isinstance(one, Int4) else "FP8" if isinstance(one, Fp8) else "Half"
