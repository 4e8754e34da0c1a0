"""FP16 and BF16: a float32 graph, cast node by node, with a list of nodes that stay float32.

TensorRT networks are strongly typed: a kernel computes in the type that the graph specifies, so half precision must be written
into the graph. Here every tensor gets the type of the node that makes it. If a reader needs another type, a Cast is inserted.

FP16 has 10 bits of mantissa and a largest value of 65,504. BF16 has 7 bits and the range of float32. FP16 rounds more finely,
and BF16 hardly ever overflows. The keep list is for nodes that overflow (a sum of squares, an exponential).

Source: Micikevicius et al., Mixed Precision Training (2018); Kalamkar et al., A Study of BFLOAT16 for Deep Learning Training
(2019); NVIDIA TensorRT documentation, "Strongly Typed Networks".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
from onnx import version_converter
from onnx_ir.passes.common import LiftConstantsToInitializersPass

from course_lib.errors import CourseError
from course_lib.precision.quantization.qdq import reject_lowered

FLOAT = ir.DataType.FLOAT
_HALVES = {"fp16": ir.DataType.FLOAT16, "bf16": ir.DataType.BFLOAT16}
_BF16_OPSET, _BF16_IR = 22, 10  # the first in which convolutions take BF16, and the file format it came with
_TAKES_ANY_TYPE = {"Cast", "Shape", "Size"}
_PAIRS = {"QuantizeLinear", "DequantizeLinear"}


def cast(model: onnx.ModelProto, dtype: Literal["fp16", "bf16"], *, keep: Collection[str] = ()) -> onnx.ModelProto:
    """A copy of a float32 model that computes in half precision; its inputs and outputs stay float32.

    Weights are rounded once and stored in half the space, unless only kept nodes read them; very small ones become 0. Nodes keep
    their names, and a cast is named after its tensor: ``x/to_fp16``, ``x/to_fp32``. Operators without a half-precision form in
    ONNX stay float32 as if they were kept, and so do Q/DQ pairs.

    Args:
        model: a float32 model. It is not changed.
        dtype: "fp16" or "bf16". BF16 needs opset 22, and an older model is converted.
        keep: names of nodes that compute in float32.

    Raises:
        CourseError: an unknown dtype, a kept node that does not exist, a weight beyond the type's largest number, a tensor of
            unknown type, subgraphs (If, Loop), a copy that was lowered for ONNX Runtime, or no valid model.
    """
    if dtype not in tuple(_HALVES):  # a tuple: a list, too, can be looked for in it
        raise CourseError(f"dtype must be 'fp16' or 'bf16', got {dtype!r}")
    reject_lowered(model)
    if unknown := set(keep) - {node.name for node in model.graph.node}:
        raise CourseError(f"keep names the node {min(unknown)!r}, which the model does not have")
    typed = _typed(model, dtype)
    _Casting(typed.graph, dtype).run(frozenset(keep))
    half = ir.to_proto(typed)
    onnx.checker.check_model(half, full_check=True)
    return half


def _typed(model: onnx.ModelProto, dtype: str) -> ir.Model:
    """The model with the type of every tensor, and with its Constant nodes turned into initializers."""
    try:
        onnx.checker.check_model(model)
    except onnx.checker.ValidationError as error:  # such as weights that are missing
        raise CourseError(f"this is not a valid ONNX model: {' '.join(str(error).split())[:200]}") from None
    try:
        if dtype == "bf16" and next(i.version for i in model.opset_import if i.domain in ("", "ai.onnx")) < _BF16_OPSET:
            model = version_converter.convert_version(model, _BF16_OPSET)
            model.ir_version = max(model.ir_version, _BF16_IR)
        opened = ir.from_proto(onnx.shape_inference.infer_shapes(model, strict_mode=True))
    except (RuntimeError, onnx.shape_inference.InferenceError) as error:
        raise CourseError(f"the types of this model cannot be inferred: {str(error).strip().splitlines()[0][:200]}") from None
    if opened.functions or next(opened.graph.subgraphs(), None) is not None:
        raise CourseError("a model with subgraphs (If, Loop) or functions cannot be cast: cast the PyTorch module instead")
    LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(opened)
    for node in opened.graph:
        for value in node.outputs:
            if value.dtype is None and value.name:
                raise CourseError(
                    f"the type of {value.name!r}, which node {node.name!r} makes, is unknown: add it to value_info"
                )
    return opened


class _Casting:
    """One pass over a graph in order, so that the types of a node's inputs are known when it is reached."""

    def __init__(self, graph: ir.Graph, name: str) -> None:
        self.graph, self.name, self.half = graph, name, _HALVES[name]
        made = [value for node in graph for value in node.outputs]
        self.floats = {v for v in (*graph.inputs, *graph.initializers.values(), *made) if v.dtype == FLOAT}
        self.copies: dict[tuple[ir.Value, ir.DataType], ir.Value] = {}  # each tensor is cast to a type once

    def run(self, keep: Collection[str]) -> None:
        for node in list(self.graph):
            if node.op_type == "Cast" and not node.domain:
                self._retarget(node, kept=node.name in keep)
            elif node.op_type not in _TAKES_ANY_TYPE:
                self._settle(node, kept=node.name in keep)
        self._restore_outputs()
        self._drop_wide_weights()

    def _settle(self, node: ir.Node, *, kept: bool) -> None:
        """Give a node's inputs and outputs the types that it computes with."""
        halved = set() if kept else _half_places(node, self.half, self.graph.opset_imports)
        for position, value in enumerate(node.inputs):
            if value is not None and value in self.floats:
                dtype = self.half if ("input", position) in halved else FLOAT
                node.replace_input_with(position, self._read_as(value, dtype, node))
        for position, value in enumerate(node.outputs):
            if value in self.floats and ("output", position) in halved:
                value.dtype = self.half

    def _retarget(self, node: ir.Node, *, kept: bool) -> None:
        """Adapt one of the model's own Casts. A Cast to float32 now casts to half, and is removed if it changes nothing."""
        source, result = node.inputs[0], node.outputs[0]
        if result not in self.floats or kept or source is None:
            return
        node.attributes["to"] = ir.AttrInt64("to", self.half)
        result.dtype = self.half
        if source.dtype == self.half and not result.is_graph_output():
            result.replace_all_uses_with(source)
            self.floats.add(source)
            self.graph.remove(node, safe=True)

    def _read_as(self, value: ir.Value, dtype: ir.DataType, reader: ir.Node | None = None) -> ir.Value:
        """`value` in the wanted type: itself, a rounded constant, or the output of a Cast directly after it."""
        if value.dtype == dtype:
            return value
        if (value, dtype) not in self.copies:
            name = f"{value.name}/to_{'fp32' if dtype == FLOAT else self.name}"
            if value.is_initializer():
                copy = self._round(value, name, reader)
                self.graph.register_initializer(copy)
            else:
                node = ir.node("Cast", [value], {"to": dtype}, name=name)
                copy = node.outputs[0]
                copy.name, copy.type, copy.shape = name, ir.TensorType(dtype), value.shape
                producer = value.producer()
                self.graph.insert_after(producer, node) if producer else self.graph.insert_before(self.graph[0], node)
            self.copies[value, dtype] = copy
        return self.copies[value, dtype]

    def _round(self, value: ir.Value, name: str, reader: ir.Node | None) -> ir.Value:
        assert value.const_value is not None
        wide, numpy_type = value.const_value.numpy(), self.half.numpy()
        with np.errstate(over="ignore"):
            rounded = wide.astype(numpy_type)
        lost = np.isfinite(wide) & ~np.isfinite(rounded.astype(np.float32))
        if lost.any():
            raise CourseError(
                f"weight {value.name!r} of node {reader.name if reader else None!r} holds {np.abs(wide[lost]).max():.3g}, beyond the "
                f"largest number of {self.name} ({float(ml_dtypes.finfo(numpy_type).max):.5g}): keep the node"
            )
        return ir.Value(
            name=name,
            shape=value.shape,
            type=ir.TensorType(self.half),
            const_value=ir.tensor(rounded, dtype=self.half, name=name),
        )

    def _restore_outputs(self) -> None:
        for position, value in enumerate(self.graph.outputs):
            if value in self.floats and value.dtype == self.half:
                name = value.name
                wide = self._read_as(value, FLOAT)
                value.name = f"{name}/{self.name}"
                wide.name = name
                self.graph.outputs[position] = wide

    def _drop_wide_weights(self) -> None:
        """If only half-precision nodes read a weight, replace it by its rounded copy with the same name."""
        for (value, _), copy in self.copies.items():
            if value.is_initializer() and not value.uses() and not value.is_graph_output():
                name = str(value.name)
                del self.graph.initializers[name]
                copy.name = name


def _half_places(node: ir.Node, half: ir.DataType, opsets: Mapping[str, int]) -> set[tuple[str, int]]:
    """The inputs and outputs of `node` that may be in half precision, according to ONNX's schema of the operator.

    An output follows the inputs. Without an input of the same type variable (ConstantOfShape), its type does not change. Operators with an
    attribute for their type (RandomNormalLike) stay in float32.
    """
    if node.op_type in _PAIRS or not onnx.defs.has(node.op_type, node.domain):
        return set()
    schema = onnx.defs.get_schema(node.op_type, opsets[node.domain], node.domain)
    if "dtype" in schema.attributes:
        return set()
    takes = {c.type_param_str for c in schema.type_constraints if f"tensor({half.name.lower()})" in c.allowed_type_strs}
    read = [_formal(schema.inputs, position) for position in range(len(node.inputs))]
    made = [_formal(schema.outputs, position) for position in range(len(node.outputs))]
    return {("input", position) for position, variable in enumerate(read) if variable in takes} | {
        ("output", position) for position, variable in enumerate(made) if variable in takes and variable in read
    }


def _formal(parameters: Sequence[onnx.defs.OpSchema.FormalParameter], position: int) -> str:
    """The type variable of an operator's parameter; the last one may stand for many (Concat, Split)."""
    return parameters[min(position, len(parameters) - 1)].type_str
