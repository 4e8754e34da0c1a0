"""What lab 04 gives: the network as ONNX, the largest magnitude at each node, the kernels of an engine, and `findings.toml`."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from course_lib import style
from course_lib.benchmark.one_node import every_tensor
from course_lib.engines import LayerTable, Plan
from course_lib.errors import CourseError
from course_lib.labs.framework.examination import Examiner
from course_lib.labs.framework.submission import read_toml
from course_lib.recipe import Profile, Recipe

if TYPE_CHECKING:
    import onnx

OPSET = 17  # the newest that every builder of the course reads, and names of nodes that are the same on every machine
BATCHES, ROWS = (1, 32), (16, 48)  # the service: that many digits per request, that many pixel rows per digit
SERVICE = Profile(tokens={"min": (1, 16, 32), "opt": (8, 32, 32), "max": (32, 48, 32)})
LARGEST = float(np.finfo(np.float16).max)  # 65,504
SMALLEST = float(np.finfo(np.float16).smallest_subnormal)  # 6e-8
FILE, MAX_BYTES = "findings.toml", 64 << 10
MOST_NODES = 64  # the network has 200 that compute on floats
_SHOWN = 28  # bars
# TensorRT 8.6 takes types for permissions and shows a transformer as one Myelin layer. TensorRT for RTX takes them as they
# are written and shows every kernel.
_ITS_TARGET = "sm89"
Findings = Mapping[str, float]


@cache
def network() -> onnx.ModelProto:
    """The network as it was given, in FP32."""
    from course_lib.labs.lab04_mixed_precision.network import loud_encoder
    from course_lib.models import export_onnx

    return export_onnx(loud_encoder(), opset=OPSET)


def written(model: onnx.ModelProto, tokens: np.ndarray) -> dict[str, float]:
    """The largest magnitude in each float32 tensor that a node of the model makes, by the tensor's name.

    Args:
        model: float32, in memory. It is not changed.
        tokens: one batch of its input, ``(N, S, 32)``.
    """
    made = every_tensor(model, {"tokens": tokens})
    return {name: float(np.abs(values).max()) for name, values in made.items() if values.dtype == np.float32}


def by_node(model: onnx.ModelProto, largest: Mapping[str, float]) -> dict[str, float]:
    """For each node, the largest magnitude in `largest` of the tensors that it reads and makes, without its weights."""
    found = {}
    for node in model.graph.node:
        seen = [largest[name] for name in (*node.input, *node.output) if name in largest]
        if seen:
            found[node.name] = max(seen)
    return found


def magnitudes(model: onnx.ModelProto, tokens: np.ndarray) -> dict[str, float]:
    """For each node of a float32 model, the largest magnitude that it reads or writes on one batch, in graph order."""
    return by_node(model, written(model, tokens))


@dataclass(frozen=True)
class Kernels:
    """Counts of one engine.

    Attributes:
        total: all kernels.
        wide: those that read activations or hold weights in FP32, or in BF16, which is no answer to this lab's question.
        attention: fused attention kernels in half precision.
        wide_types: the types of the wide ones, for a message.
    """

    total: int
    wide: int
    attention: int
    wide_types: str = "FP32"

    @property
    def share(self) -> float:
        """Share of kernels that compute in half precision, 0 to 1."""
        return 1 - self.wide / self.total if self.total else 0.0

    @classmethod
    def of(cls, table: LayerTable) -> Kernels:
        """The counts of a layer table."""
        kernels = table.kernels
        # The compiler's own name. A matrix product carries its node's name, which a submission chooses, but not this kind.
        attention = [one for one in kernels if one.kind == "kgen" and one.name.startswith("_gemm_mha")]
        return cls(
            total=len(kernels),
            wide=sum(bool({"Float", "BFloat16"} & kernel.dtypes) for kernel in kernels),
            attention=sum(kernel.dtypes == {"Half"} for kernel in attention),
            wide_types="FP32 or BF16" if any("BFloat16" in kernel.dtypes for kernel in kernels) else "FP32",
        )


def prove(model: Path, recipe: Recipe, examiner: Examiner) -> Plan:
    """The plan whose layer table counts. It is from the examiner's builder, or from TensorRT for RTX if that builder is TensorRT 8.6."""
    if examiner.opset is None:
        return examiner.build(model, recipe)
    return examiner.with_rtx.build(model, recipe.model_copy(update={"targets": (_ITS_TARGET,)}))


def magnitudes_figure(largest: Mapping[str, float]) -> style.Figure:
    """Draw the nodes with the largest of the `magnitudes` as bars, in graph order, and the limit of FP16."""
    drawn = sorted(largest, key=lambda node: -largest[node])[:_SHOWN]
    shown = [node for node in largest if node in drawn]
    figure, axes = style.subplots(0.9 + 0.17 * len(shown))
    sizes = [largest[node] for node in shown]
    axes.barh(range(len(shown)), sizes, color=[style.color(size > LARGEST) for size in sizes], height=0.7)
    axes.axvline(LARGEST, color="black", lw=1, ls="--")
    axes.annotate("65,504", (LARGEST, -1), xytext=(3, 0), textcoords="offset points", va="center", fontsize=8)
    axes.set_yticks(range(len(shown)), shown, fontsize=8)
    axes.set_ylim(len(shown), -1.6)
    axes.set_xscale("log")
    axes.set_xlabel("largest magnitude that the node reads or writes (log)")
    beyond = sum(size > LARGEST for size in largest.values())
    figure.suptitle(f"{beyond} of {len(largest)} nodes handle numbers beyond FP16", fontsize=10, fontweight="bold")
    return figure


def emulated(model: bytes) -> bytes:
    """`precision.emulate` for a serialized model: float32 arithmetic between roundings.

    Without it, ONNX Runtime on a CPU skips the roundings between most nodes, and overflows that every GPU shows.
    """
    import onnx

    from course_lib.precision import emulate

    return bytes(emulate(onnx.shape_inference.infer_shapes(onnx.load_model_from_string(model))).SerializeToString())


def write(findings: Findings, path: str | os.PathLike[str] = FILE) -> None:
    """Write `findings.toml`: for each node the largest magnitude that it reads or writes."""
    lines = [f'"{node}" = {float(size):.6g}' for node, size in findings.items()]
    Path(path).write_text("\n".join(["[largest]", *lines, ""]), encoding="utf-8")


def read(path: Path) -> Findings:
    """The content of a file that `write` wrote.

    Raises:
        CourseError: the file is missing, too long, not TOML, or not a table `largest` of at most `MOST_NODES` numbers.
    """
    found = read_toml(path, MAX_BYTES)
    largest = found.get("largest")
    if found.keys() != {"largest"} or not isinstance(largest, dict) or not largest:
        raise CourseError(f'{FILE} has to be one table [largest] with lines such as "/head/Gemm" = 12.5')
    if len(largest) > MOST_NODES:
        raise CourseError(f"{FILE} names {len(largest)} nodes; at most {MOST_NODES} are read, and far fewer break")
    for node, size in largest.items():
        if isinstance(size, bool) or not isinstance(size, (int, float)) or not 0 < size < math.inf:
            raise CourseError(f"{FILE} needs a positive number for {node[:60]!r}, found {size!r:.40}")
    return {node: float(size) for node, size in largest.items()}
