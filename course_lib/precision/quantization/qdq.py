"""Explicit INT8: QuantizeLinear/DequantizeLinear pairs, "Q/DQ", where TensorRT expects them.

A pair rounds a tensor to 8 bits and turns it back to float, so the graph still reads as a float graph and runs anywhere. A
compiler that finds pairs on both inputs of a convolution or a matrix product runs it on integers. The places of
the pairs therefore decide which kernels become INT8:

- on both inputs of Conv, Gemm and MatMul with a constant weight, never on a bias, which is added to the 32-bit sum;
- on the shortcut of a residual Add after a Conv, so that the kernel that adds it reads 8 bits instead of 32;
- never between a Conv or an Add and the Relu after it, which would then not fuse, and never on an output of the graph.

Source: NVIDIA TensorRT documentation, "Working with Quantized Types", Q/DQ placement; Jacob et al., Quantization and Training of
Neural Networks for Efficient Integer-Arithmetic-Only Inference (2018); Wu et al., Integer Quantization for Deep Learning
Inference: Principles and Empirical Evaluation (2020), for per-channel weights.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import ArrayLike

from course_lib.errors import CourseError
from course_lib.precision import LOWERED

OLDEST_OPSET = 13  # the first with a scale for each channel
_WEIGHTED = ("Conv", "Gemm", "MatMul")
_SMALLEST = 127 * float(np.finfo(np.float32).tiny)  # a weight below has a step that many kernels would flush to 0


def scale_of(amax: ArrayLike, bits: int = 8) -> np.ndarray:
    """The step between two neighboring integers, ``amax / 127`` for 8 bits, as float32 of the shape of `amax`.

    Args:
        amax: the largest magnitude that must be representable, in the tensor's own unit.
        bits: bits of the integers, 2 to 16.

    Raises:
        CourseError: a range is zero, negative, not finite, or so small that float32 cannot hold the step.
    """
    if not 2 <= bits <= 16:
        raise CourseError(f"bits must be from 2 to 16, got {bits}")
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        amax = np.asarray(amax, np.float32)
        scale = np.asarray(amax / np.float32(2 ** (bits - 1) - 1))
    bad = ~(np.isfinite(scale) & (scale > 0))
    if bad.any():
        raise CourseError(f"the range {amax[bad].flat[0]:g} cannot be quantized: it must be positive and finite")
    return scale


def fake_quantize(array: ArrayLike, amax: ArrayLike, bits: int = 8) -> np.ndarray:
    """Compute what a Q/DQ pair computes: divide by the scale, round half to even, clip to [-128, 127], multiply. Float32.

    Args:
        array: any shape.
        amax: largest magnitude, as one number or an array that broadcasts against `array`. For a weight ``(out, in, 3, 3)`` with
            one range per output channel, it has the shape ``(out, 1, 1, 1)``.
        bits: number of bits of the integers; their limits are ``-2**(bits - 1)`` and ``2**(bits - 1) - 1``.

    Raises:
        CourseError: as in `scale_of`.

    Source: the ONNX operators QuantizeLinear and DequantizeLinear with zero point 0.
    """
    scale = scale_of(amax, bits)
    limit = 2 ** (bits - 1)
    with np.errstate(over="ignore"):  # far outside of the range: infinity, which is clipped
        steps = np.rint(np.asarray(array, np.float32) / scale)
    return np.clip(steps, -limit, limit - 1).astype(np.float32) * scale


def insert_qdq(
    model: onnx.ModelProto, amax: Mapping[str, float], *, exclude: Collection[str] = (), per_channel: bool = True
) -> onnx.ModelProto:
    """A copy of a float32 model with symmetric INT8 Q/DQ pairs (zero point 0, constant scales).

    Each pair is named after its tensor: nodes ``x/quantize`` and ``x/dequantize``, constants ``x/scale`` and ``x/zero_point``.
    Weights stay float32 in the file, in front of their pair: TensorRT and ONNX Runtime quantize them when they build.
    The result is for TensorRT and runs on every backend. For speed on a CPU, make a second copy with `lower_for_onnxruntime`.

    Args:
        model: opset 13 or newer. It is not changed.
        amax: the largest magnitude of each tensor in `activations`, for example from a calibrator; others are ignored.
        exclude: names of nodes that stay float.
        per_channel: give each output channel of a weight its own scale; otherwise one for the whole weight.

    Raises:
        CourseError: a tensor has no usable range, an excluded node does not exist, nothing is left to quantize, the model has
            an older opset, has Q/DQ pairs already, or was lowered for ONNX Runtime.
    """
    opened = _open(model)
    points = list(_points(opened.graph, exclude))
    if not points:
        raise CourseError("nothing to quantize: no Conv, Gemm or MatMul with a constant weight is left")
    pairs: dict[tuple[str, int | None], ir.Value] = {}
    for node, position, tensor in points:
        weight = constant_of(tensor)
        axis = _output_axis(node, weight.ndim) if weight is not None and per_channel else None
        key = (str(tensor.name), axis)
        if key not in pairs:
            scale = _scale_for(tensor, node, amax, axis)
            shared = any(name == tensor.name for name, _ in pairs)  # one weight, read along two axes: two pairs
            name = f"{tensor.name}/axis{axis}" if shared else str(tensor.name)
            pairs[key] = insert_pair(node, tensor, scale, np.zeros(scale.shape, np.int8), axis=axis, name=name)
        node.replace_input_with(position, pairs[key])
    quantized = ir.to_proto(opened)
    onnx.checker.check_model(quantized)
    return quantized


def activations(model: onnx.ModelProto, *, exclude: Collection[str] = ()) -> tuple[str, ...]:
    """Names of the tensors for which `insert_qdq` needs a range, in graph order. A calibrator must observe them.

    Raises:
        CourseError: as in `insert_qdq`, except for ranges.
    """
    tensors = [tensor for _, _, tensor in _points(_open(model).graph, exclude)]
    return tuple(dict.fromkeys(str(tensor.name) for tensor in tensors if constant_of(tensor) is None))


def _open(model: onnx.ModelProto) -> ir.Model:
    reject_lowered(model)
    if any(node.op_type == "QuantizeLinear" for node in model.graph.node):
        raise CourseError("the model has Q/DQ pairs already: start from the float32 model")
    opset = next((imported.version for imported in model.opset_import if imported.domain in ("", "ai.onnx")), 0)
    if opset < OLDEST_OPSET:
        raise CourseError(
            f"the model has opset {opset}, scales for each channel need {OLDEST_OPSET} or newer: export it again, or upgrade it "
            f"with onnx.version_converter.convert_version(model, {OLDEST_OPSET})"
        )
    return ir.from_proto(model)


def _points(graph: ir.Graph, exclude: Collection[str]) -> Iterator[tuple[ir.Node, int, ir.Value]]:
    """The places of pairs, in graph order: a node, the index of one of its inputs, and the tensor there."""
    if unknown := set(exclude) - {node.name for node in graph}:
        raise CourseError(f"exclude names the node {min(unknown)!r}, which the model does not have")
    place = {node: index for index, node in enumerate(graph)}
    for node in graph:
        if node.name in exclude:
            continue
        positions = (0, 1) if _is_weighted(node) else _shortcut(node, place, exclude)
        for position in positions:
            tensor = node.inputs[position]
            assert tensor is not None
            yield node, position, tensor


def _is_weighted(node: ir.Node) -> bool:
    """Whether `node` multiplies an activation with a constant float32 weight."""
    if node.op_type not in _WEIGHTED or node.domain:
        return False
    weight = constant_of(node.inputs[1])
    return weight is not None and weight.dtype == np.float32 and constant_of(node.inputs[0]) is None


def _shortcut(add: ir.Node, place: Mapping[ir.Node, int], exclude: Collection[str]) -> tuple[int, ...]:
    """The input of a residual Add that is the shortcut past a quantized Conv; empty without such a Conv.

    If both inputs come from convolutions (a shortcut with a projection), the longer path is the main one: its Conv reads the
    tensor that is made later. Matrix products are not changed. Their residual stream carries the whole signal of a
    transformer, and rounding it does not make any kernel INT8.
    """
    if add.op_type != "Add" or add.domain or any(constant_of(value) is not None for value in add.inputs):
        return ()
    made_at = [-1, -1]  # for each input, where in the graph the tensor is made that its Conv reads; -1: no Conv
    for position, value in enumerate(add.inputs):
        conv = _conv_behind(value)
        if conv is not None and conv.name not in exclude and value is not None and len(value.uses()) == 1:
            source = conv.inputs[0].producer() if conv.inputs[0] is not None else None
            made_at[position] = place[source] if source is not None else 0
    if max(made_at) < 0:
        return ()
    return (1,) if made_at[0] >= made_at[1] else (0,)


def _conv_behind(value: ir.Value | None) -> ir.Node | None:
    """The weighted Conv that makes `value`, directly or through a batch norm, which the compiler folds into it."""
    node = value.producer() if value is not None else None
    if node is not None and node.op_type == "BatchNormalization" and node.inputs[0] is not None:
        node = node.inputs[0].producer()
    return node if node is not None and node.op_type == "Conv" and _is_weighted(node) else None


def _output_axis(node: ir.Node, rank: int) -> int | None:
    """The axis of a weight that counts output channels: one scale each. None for a vector, which makes a single number."""
    if node.op_type == "Conv":
        return 0
    if node.op_type == "Gemm":
        return 0 if node.attributes.get_int("transB", 0) else 1
    return rank - 1 if rank > 1 else None


def _scale_for(tensor: ir.Value, node: ir.Node, amax: Mapping[str, float], axis: int | None) -> np.ndarray:
    """The scale of a tensor. For a weight it follows from the values, for an activation from the calibrated range."""
    where = f"tensor {tensor.name!r}, which node {node.name!r} reads"
    weight = constant_of(tensor)
    if weight is None and tensor.name not in amax:
        raise CourseError(f"no range for {where}: calibrate it, or exclude the node")
    try:
        return scale_of(amax[str(tensor.name)] if weight is None else _weight_amax(weight, axis))
    except CourseError as error:
        raise CourseError(f"{where}: {error}; calibrate on real inputs, or exclude the node") from None


def _weight_amax(weight: np.ndarray, axis: int | None) -> np.ndarray:
    """One range per channel, or one for all. Weights that are all 0, as after pruning, get the range 1, because any would do."""
    others = None if axis is None else tuple(other for other in range(weight.ndim) if other != axis)
    amax = np.abs(weight).max(axis=others)
    return np.where(amax < _SMALLEST, 1, amax)


def reject_lowered(model: onnx.ModelProto) -> None:
    """Reject a copy that was lowered for ONNX Runtime, because only TensorRT-legal models are allowed here.

    Raises:
        CourseError: the model has the mark, or is not a model.
    """
    if not isinstance(model, onnx.ModelProto):
        raise CourseError(
            f"expected an ONNX model in memory, got {type(model).__name__}: onnx.load(path) reads one from a file"
        )
    if any(entry.key == LOWERED for entry in model.metadata_props):
        raise CourseError("this copy was lowered for ONNX Runtime and is for nothing else: use the model it was made from")


def insert_pair(
    reader: ir.Node, tensor: ir.Value, scale: np.ndarray, zero_point: np.ndarray, *, axis: int | None = None, name: str
) -> ir.Value:
    """Insert a pair for `tensor` before `reader`, its first reader, and return the pair's result, which has no reader yet.

    Args:
        scale, zero_point: one number, or with `axis` one for each index along it; the zero point's dtype is the integers'.
    """
    parameters = [initializer(reader, f"{name}/scale", scale), initializer(reader, f"{name}/zero_point", zero_point)]
    attributes = {} if axis is None else {"axis": axis}
    quantize = ir.node("QuantizeLinear", [tensor, *parameters], attributes, name=f"{name}/quantize")
    dequantize = ir.node("DequantizeLinear", [quantize.outputs[0], *parameters], attributes, name=f"{name}/dequantize")
    for node, dtype in ((quantize, parameters[1].dtype), (dequantize, ir.DataType.FLOAT)):
        assert dtype is not None
        node.outputs[0].name, node.outputs[0].type, node.outputs[0].shape = node.name, ir.TensorType(dtype), tensor.shape
    reader.prepend((quantize, dequantize))
    return dequantize.outputs[0]


def initializer(node: ir.Node, name: str, array: np.ndarray) -> ir.Value:
    """A new constant in the graph that `node` belongs to."""
    assert node.graph is not None
    tensor = ir.tensor(array, name=name)
    value = ir.Value(name=name, shape=ir.Shape(array.shape), type=ir.TensorType(tensor.dtype), const_value=tensor)
    node.graph.register_initializer(value)
    return value


def constant_of(value: ir.Value | None) -> np.ndarray | None:
    """The value of an initializer or a Constant node; None for anything that is computed."""
    tensor = ir.convenience.get_const_tensor(value) if value is not None else None
    return None if tensor is None else tensor.numpy()
