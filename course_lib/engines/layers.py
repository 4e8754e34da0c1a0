"""The layer table of a plan: the kernels that the compiler chose, and what each one fuses, reads and writes."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, overload

from course_lib._util.html import LEFT, WIDE, notebook_table
from course_lib.errors import PrecisionError
from course_lib.style import breakable_html

# Layer types of TensorRT's host-side bookkeeping. They launch nothing on the GPU, so they are not kernels.
HOST_KINDS = frozenset({
    *("shape_call", "signal", "wait", "cpu", "assert", "NoOp", "TrainStation"),
    *("ShapeHostToDevice", "ShapeDeviceToHost", "DeviceToShapeHost"),
})  # fmt: skip

# What tables, drawings and messages call a datatype of TensorRT; the others are its name in capitals.
_NAMES = {"Float": "FP32", "Half": "FP16", "BFloat16": "BF16", "Double": "FP64"}
_MYELIN = re.compile(r"^__myl_|_myl\d+_\d+$")  # what it puts around the name of a kernel that it generates
# The datatype, as layer tables write it, that proves a recipe's precision.
PROOF = {"fp32": "Float", "fp16": "Half", "bf16": "BFloat16", "int8": "Int8", "fp8": "FP8"}
# Operators that multiply by weights or by each other, and those that only convert numbers.
_MULTIPLYING = frozenset(
    {"Conv", "ConvTranspose", "Gemm", "MatMul", "MatMulInteger", "ConvInteger", "QLinearConv", "QLinearMatMul"}
)
_CONVERTING = frozenset({"Cast", "QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"})
# What Myelin shortens in the names of its generated kernels, such as "__myl_TranCastMul". The first ones only move numbers.
_MOVING_WORDS = {
    "Move": "copy to another memory layout",
    "Tran": "transpose",
    "Resh": "reshape",
    "Slic": "slice",
    "Conc": "concatenation",
    "Gath": "gather",
    "Repl": "repetition",
}
_WORDS = {"Fc": "fully connected layer", "Corr": "convolution", "Maxr": "maximum", "Roun": "rounding", **_MOVING_WORDS}
# Operators that only move numbers, as ONNX and as Myelin spell them.
_MOVING = frozenset(
    ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Identity", "Slice", "Split", "Concat", "Gather", "Expand")
).union(_MOVING_WORDS)
_CONVERTER_KINDS = frozenset({"Reformat", "Cast"})  # of TensorRT
_NO_KERNELS = "No layer table: this backend does not tell which kernels it runs."
_CELL = 40  # characters that a cell of the text table shows
_LITTLE = 0.5  # a share of the multiplications below this is worth a note
_MANY = 0.25  # and so is this share of multiplications that are taken apart, or of kernels that only convert
COMPARE_WITH_FLOAT = ": compare with the float engine, `course layers MODEL --against FLOAT_MODEL`"  # the end of a note
# Datatypes that an FP32 engine does not compute in. UInt8 is not one of them: it is how images arrive.
_SMALLER = frozenset({"Half", "BFloat16", "Int8", "FP8", "FP4", "Int4"})
# Datatypes of FP32 engines, and of shapes, indices and masks.
_OTHERS = frozenset({
    *("Float", "Double", "UInt8", "Int16", "UInt16", "Int32", "UInt32", "Int64", "UInt64", "Bool", "E8M0"),
    *("FloatComplex", "DoubleComplex"),
})  # fmt: skip

BYTES_PER_NUMBER = {
    **dict.fromkeys(("Double", "Int64", "UInt64"), 8.0),
    **dict.fromkeys(("Float", "Int32", "UInt32"), 4.0),
    **dict.fromkeys(("Half", "BFloat16", "Int16", "UInt16"), 2.0),
    **dict.fromkeys(("Int8", "UInt8", "FP8", "Bool", "E8M0"), 1.0),
    **dict.fromkeys(("FP4", "Int4"), 0.5),
}


def dtype_name(dtype: str) -> str:
    """The common name of a datatype of a layer table: ``"Half"`` is FP16, ``"Int8"`` is INT8."""
    return _NAMES.get(dtype, dtype.upper())


@dataclass(frozen=True)
class LayerTensor:
    """A tensor that a layer reads or writes. `shape` has -1 where a dimension is dynamic.

    `dtype` is TensorRT's word, such as "Half", which `dtype_name` translates; "" if unknown.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    format: str = ""

    @property
    def bytes(self) -> int:
        """Size in memory, with 1 for each dynamic dimension; 0 if the datatype is unknown."""
        return math.ceil(math.prod(map(abs, self.shape)) * BYTES_PER_NUMBER.get(self.dtype, 0))


@dataclass(frozen=True)
class Layer:
    """One row of the table: a kernel, or a step on the host."""

    name: str
    kind: str
    inputs: tuple[LayerTensor, ...] = ()
    constants: tuple[LayerTensor, ...] = ()
    outputs: tuple[LayerTensor, ...] = ()
    tactic: str = ""
    onnx_nodes: tuple[str, ...] = ()

    @property
    def short_name(self) -> str:
        """The name without what Myelin puts around it: ``MulAdd`` for ``__myl_MulAdd_myl0_3``."""
        return _MYELIN.sub("", self.name)

    @property
    def name_words(self) -> dict[str, str]:
        """The words that Myelin shortened in this name, with their meaning: ``{"Tran": "transpose"}``."""
        words = re.findall("[A-Z][a-z]+", self.short_name) if self.name.startswith("__myl_") else []
        return {word: meaning for word, meaning in _WORDS.items() if word in words}

    @property
    def is_kernel(self) -> bool:
        """Whether this layer launches work on the GPU."""
        return self.kind not in HOST_KINDS

    @property
    def dtypes(self) -> frozenset[str]:
        """Datatypes in which the layer computes: those of its inputs and weights, if the compiler reports them."""
        return frozenset(t.dtype for t in (*self.inputs, *self.weights) if t.dtype)

    @property
    def weights(self) -> tuple[LayerTensor, ...]:
        """The constants without scalars: a half-precision convolution still scales its result by an FP32 one."""
        return tuple(t for t in self.constants if math.prod(t.shape) != 1)

    @property
    def bytes(self) -> int:
        """Bytes of all tensors that the layer reads and writes, weights included, if each crosses to memory once."""
        moved = {tensor.name: tensor.bytes for tensor in (*self.inputs, *self.constants)}
        return sum(moved.values()) + sum(tensor.bytes for tensor in self.outputs)


@dataclass(frozen=True)
class LayerTable(Sequence[Layer]):
    """The layers of one plan in the order of execution; `kernels` leaves out the steps on the host.

    Attributes:
        layers: every row.
        operators: operator type of each ONNX node by node name, ``{}`` if the graph was not available.
    """

    layers: tuple[Layer, ...] = ()
    operators: Mapping[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.layers)

    @overload
    def __getitem__(self, index: int) -> Layer: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Layer, ...]: ...
    def __getitem__(self, index: int | slice) -> Layer | tuple[Layer, ...]:
        return self.layers[index]

    def __iter__(self) -> Iterator[Layer]:
        return iter(self.layers)

    @property
    def kernels(self) -> tuple[Layer, ...]:
        """The rows that launch work on the GPU."""
        return tuple(layer for layer in self.layers if layer.is_kernel)

    def dtype_counts(self) -> Counter[str]:
        """Number of kernels that compute in each datatype. A kernel with two types counts for both."""
        return Counter(dtype for kernel in self.kernels for dtype in kernel.dtypes)

    def summary(self) -> str:
        """The number of nodes, of kernels, and of kernels that compute in each datatype."""
        counts = ", ".join(f"{n} with {dtype_name(dtype)}" for dtype, n in self.dtype_counts().most_common())
        nodes = f"{len(self.operators)} ONNX nodes became " if self.operators else ""
        return f"{nodes}{len(self.kernels)} kernel{'' if len(self.kernels) == 1 else 's'} ({counts})"

    def caption(self) -> str:
        """The summary, and what the shortened words in the names of kernels mean."""
        words = {word: meaning for kernel in self.kernels for word, meaning in kernel.name_words.items()}
        legend = ", ".join(f"{word} = {words[word]}" for word in _WORDS if word in words)
        return f"{self.summary()}; in kernel names: {legend}" if legend else self.summary()

    def fused_operators(self, layer: Layer) -> str:
        """The ONNX operators inside one layer in the graph's order, such as ``"Conv + Add + Relu"``.

        Node names, in the compiler's order, if the graph is not available.
        """
        place = {name: index for index, name in enumerate(self.operators)}
        nodes = sorted(layer.onnx_nodes, key=lambda node: place.get(node, 0))
        return " + ".join(self.operators.get(node, node) for node in nodes)

    def check_precision(self, precision: str) -> None:
        """Prove a recipe's precision on the layers.

        FP32 means that no kernel computes in a smaller type. Integers are FP32 too, and so is a network that reads smaller numbers and
        casts them before it computes. Any other precision means that at least one
        kernel computes in it, because mixed engines keep some layers wide on purpose. `precision_notes` says how much it covers.

        Raises:
            PrecisionError: the layers have another precision, or do not prove any. The message names them.
        """
        wanted = PROOF[precision]
        kernels = [kernel for kernel in self.kernels if kernel.dtypes]
        if not kernels:
            raise PrecisionError(
                f"the recipe says {precision}, but none of the {len(self.kernels)} kernels in the layer table reports a datatype, so "
                "nothing is proved: build with detailed profiling verbosity, and with TensorRT 8.6 for fixed shapes"
            )
        for kernel in kernels:
            if unknown := sorted(kernel.dtypes - _SMALLER - _OTHERS):
                raise PrecisionError(
                    f"the recipe says {precision}, but the datatype {unknown[0][:60]!r} of kernel {kernel.name} is unknown, so nothing "
                    "is proved: report this word to the course, with the version of the compiler"
                )
        smaller = {kernel.name: kernel.dtypes & _SMALLER for kernel in kernels if not self._widens(kernel)}
        offenders = [f"{name} ({', '.join(sorted(map(dtype_name, types)))})" for name, types in smaller.items() if types]
        if precision == "fp32" and offenders:
            raise PrecisionError(
                f"the recipe says fp32 but {len(offenders)} of {len(kernels)} kernels compute in a smaller type, first {offenders[0]}: "
                "set `precision`, fp32 unless the recipe says otherwise, to what the graph says"
            )
        if precision != "fp32" and not any(wanted in kernel.dtypes for kernel in kernels):
            named = ", ".join(kernel.name for kernel in kernels[:3])
            raise PrecisionError(
                f"the recipe says {precision} but none of {len(kernels)} kernels computes in {dtype_name(wanted)} (first: {named}): "
                f"the graph itself must say {precision}; cast it or insert Q/DQ before the build"
            )

    def precision_notes(self, precision: str) -> list[str]:
        """What a proof of this precision leaves open: it covers little, takes fusions apart, or needs conversions. None for FP32."""
        wanted, kernels = PROOF[precision], self.kernels
        if precision == "fp32" or not kernels:
            return []
        notes = []
        # A generated kernel converts, or ends a layer; the multiplication is in another one, which has the name of the same node.
        inside = {node for k in kernels if wanted in k.dtypes and k.kind != "kgen" for node in k.onnx_nodes}
        multiplying = [node for node, operator in self.operators.items() if operator in _MULTIPLYING]
        what = "multiplications (convolutions and matrix products)" if multiplying else "kernels"
        count = len(inside.intersection(multiplying)) if multiplying else sum(wanted in kernel.dtypes for kernel in kernels)
        whole = len(multiplying) or len(kernels)
        if count < _LITTLE * whole:
            notes.append(
                f"only {count} of {whole} {what} compute in {dtype_name(wanted)}, so most of the engine runs as before: "
                f"cast or quantize more of the graph, or expect little from {precision}"
            )
        compare = f"of {len(kernels)} kernels in all{COMPARE_WITH_FLOAT}"
        places = Counter(node for kernel in kernels for node in set(kernel.onnx_nodes))
        parted = sum(places[node] > 1 for node in multiplying)
        if parted >= _MANY * whole:
            notes.append(
                f"fusions are taken apart, {parted} of {whole} multiplications are spread over several kernels, {compare}"
            )
        converting = sum(map(self._only_converts, kernels))
        if converting >= _MANY * len(kernels):
            notes.append(f"{converting} kernels only convert numbers or formats, {compare}")
        return notes

    def _widens(self, kernel: Layer) -> bool:
        """Whether a kernel casts the smaller numbers that it reads before it computes, or does not compute at all."""
        if any(tensor.dtype in _SMALLER for tensor in kernel.weights):
            return False
        words = self._operators(kernel)
        computing = [index for index, word in enumerate(words) if word not in _CONVERTING | _MOVING]
        if kernel.kind in _CONVERTER_KINDS or (words and not computing):
            return True
        if not computing or any(tensor.dtype in _SMALLER for tensor in kernel.outputs):
            return False
        # If nothing is cast after the first computation, it has the type that the kernel writes.
        first = computing[0]
        return not _CONVERTING.isdisjoint(words[:first]) and _CONVERTING.isdisjoint(words[first:])

    def _operators(self, kernel: Layer) -> list[str]:
        """The ONNX operators inside a kernel in order, or what the name of a generated kernel tells without the graph."""
        if self.operators and kernel.onnx_nodes:
            return self.fused_operators(kernel).split(" + ")
        if kernel.kind == "kgen" and kernel.name.startswith("__myl_"):
            return re.findall("[A-Z][a-z]+", kernel.name.removeprefix("__myl_").partition("_")[0])
        return []

    def _only_converts(self, kernel: Layer) -> bool:
        words = self._operators(kernel)
        return kernel.kind in _CONVERTER_KINDS or (bool(words) and _CONVERTING.issuperset(words))

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `from_json` reads them back."""
        return {"layers": [asdict(layer) for layer in self.layers], "operators": dict(self.operators)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> LayerTable:
        """The table that `to_json` wrote."""

        def tensors(rows: Sequence[Mapping[str, Any]]) -> tuple[LayerTensor, ...]:
            return tuple(LayerTensor(**{**row, "shape": tuple(row["shape"])}) for row in rows)

        def layer(row: Mapping[str, Any]) -> Layer:
            sides = {side: tensors(row[side]) for side in ("inputs", "constants", "outputs")}
            return Layer(**{**row, **sides, "onnx_nodes": tuple(row["onnx_nodes"])})

        return cls(tuple(map(layer, values["layers"])), dict(values.get("operators", {})))

    def rows(self) -> list[dict[str, str]]:
        """One dict of short texts a kernel, for tables: kernel, kind, onnx, operators, reads, weights, writes, types, shape, format."""

        def types(tensors: Sequence[LayerTensor]) -> str:
            return ", ".join(sorted({dtype_name(t.dtype) for t in tensors if t.dtype}))

        def shapes(tensors: Sequence[LayerTensor]) -> str:
            return " ".join("x".join("N" if n < 0 else str(n) for n in t.shape) for t in tensors)

        return [
            {
                "kernel": kernel.short_name,
                "kind": kernel.kind,
                "onnx": ", ".join(kernel.onnx_nodes),
                "operators": self.fused_operators(kernel) if self.operators else "",
                "reads": types(kernel.inputs),
                "weights": types(kernel.weights),
                "writes": types(kernel.outputs),
                "types": " to ".join(
                    dict.fromkeys(filter(None, (types((*kernel.inputs, *kernel.weights)), types(kernel.outputs))))
                ),
                "shape": shapes(kernel.outputs),
                "format": ", ".join(sorted({t.format for t in kernel.outputs if t.format})),
            }
            for kernel in self.kernels
        ]

    def __repr__(self) -> str:
        """One line for each kernel: long names and lists are cut, `rows` has them."""
        rows = self.rows()
        if not rows:
            return _NO_KERNELS
        columns = [column for column in self._columns() if any(row[column] for row in rows)]
        table = [columns, *([_cut(row[column]) for column in columns] for row in rows)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = ("  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip() for cells in table)
        return "\n".join((self.caption(), *lines))

    def _columns(self) -> list[str]:
        return ["kernel", "operators" if self.operators else "onnx", "reads", "weights", "writes", "shape", "format"]

    def _repr_html_(self) -> str:
        """A table that fits a notebook's page: types and formats as columns, whole name, kind and nodes as a tooltip of the row."""
        rows = self.rows()
        if not rows:
            return f"<p>{_NO_KERNELS}</p>"
        columns = self._columns()
        styles = dict.fromkeys(columns, LEFT) | dict.fromkeys(columns[:2], WIDE)  # the first two columns hold lists
        shown = [
            (
                {"title": f"{kernel.name} ({row['kind']}): {row['onnx']}"},
                [breakable_html(row["kernel"]), *(row[column] for column in columns[1:])],
            )
            for row, kernel in zip(rows, self.kernels, strict=True)
        ]
        return notebook_table(self.caption(), styles, shown)


def _cut(text: str) -> str:
    return text if len(text) <= _CELL else f"{text[: _CELL - 3]}..."
