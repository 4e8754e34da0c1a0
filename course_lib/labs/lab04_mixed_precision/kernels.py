"""What lab 04 reads from a layer table: which kernels compute in FP32, and where attention is one kernel."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from course_lib.engines import Layer, LayerTable, Plan
from course_lib.errors import ExaminerFault
from course_lib.labs.framework.examination import Examiner, ours
from course_lib.labs.lab04_mixed_precision import reference
from course_lib.recipe import Recipe

# TensorRT 8.6 takes types for permissions and shows a transformer as one Myelin layer. TensorRT for RTX takes them as they
# are written and shows every kernel.
ITS_TARGET = "sm89"
ATTENTIONS = 4  # of the given network, one in each block
_PRODUCTS = frozenset({"MatMul", "Gemm", "Einsum"})


@dataclass(frozen=True)
class Kernels:
    """Counts of one engine.

    Attributes:
        total: all kernels.
        wide: those that read activations or hold weights in FP32, or in BF16, which is no answer to this lab's question.
        attention: fused attention kernels in half precision.
        wide_types: the types of the wide ones, for a message.
        products: products of two activations outside of these kernels: two for each attention that is split.
    """

    total: int
    wide: int
    attention: int
    products: int
    wide_types: str = "FP32"

    @property
    def share(self) -> float:
        """Share of kernels that compute in half precision, 0 to 1."""
        return 1 - self.wide / self.total if self.total else 0.0

    @classmethod
    def of(cls, table: LayerTable) -> Kernels:
        """The counts of a layer table."""
        kernels = table.kernels
        return cls(
            total=len(kernels),
            wide=sum(bool({"Float", "BFloat16"} & kernel.dtypes) for kernel in kernels),
            attention=sum(_is_half_attention(kernel) for kernel in kernels),
            products=sum(_is_product_of_activations(kernel, table) for kernel in kernels),
            wide_types="FP32 or BF16" if any("BFloat16" in kernel.dtypes for kernel in kernels) else "FP32",
        )


def _is_attention(kernel: Layer) -> bool:
    """The compiler's own name for it. A matrix product carries its node's name, which a submission chooses, but not this kind."""
    return kernel.kind == "kgen" and kernel.name.startswith("_gemm_mha")


def _is_half_attention(kernel: Layer) -> bool:
    return _is_attention(kernel) and kernel.dtypes == {"Half"}


def _is_product_of_activations(kernel: Layer, table: LayerTable) -> bool:
    """A matrix product without a matrix of its own, in a kernel of its own: generated ones (kgen) only prepare its factors."""
    has_matrix = any(sum(n > 1 for n in tensor.shape) > 1 for tensor in kernel.weights)
    return (
        kernel.kind != "kgen" and not has_matrix and any(table.operators.get(node) in _PRODUCTS for node in kernel.onnx_nodes)
    )


def prove(model: Path, recipe: Recipe, examiner: Examiner) -> Plan:
    """The plan whose layer table counts. It is from the examiner's builder, or from TensorRT for RTX if that builder is TensorRT 8.6.

    Raises:
        BuildError: the builder rejects the model.
    """
    if examiner.opset is None:
        return examiner.build(model, recipe)
    return examiner.with_rtx.build(model, recipe.model_copy(update={"targets": (ITS_TARGET,)}))


def runnable(model: bytes, recipe: Recipe, examiner: Examiner) -> Plan:
    """The plan that the examiner's runner executes.

    Raises:
        BuildError: the backend rejects the model.
    """
    with TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        path.write_bytes(model)
        return examiner.runnable(path, recipe)


@cache
def reference_kernels(builder: str) -> Kernels:
    """The reference's counts with a builder. No sandbox: it is the course's own network.

    Raises:
        ExaminerFault: it cannot be built, or its table shows no fused attention.
    """
    with TemporaryDirectory() as folder, ours():
        (model := Path(folder, "model.onnx")).write_bytes(reference.serialized())
        found = Kernels.of(prove(model, reference.RECIPE, Examiner(builder=builder)).layers)
    if not found.attention:
        raise ExaminerFault(f"{builder} does not show which kernels its engines have")
    return found
