"""A second copy of a Q/DQ model, for fast execution by ONNX Runtime on x86 CPUs. It is never for TensorRT.

TensorRT requires symmetric signed 8-bit activations. The dot-product instructions of x86 (VNNI, AMX) multiply *unsigned* with
signed bytes. ONNX Runtime fuses a convolution with its Q/DQ pairs only if its result is also rounded to 8 bits. Two changes
convert the first form into the second:

1. Shift: an int8 activation ``q`` becomes the uint8 ``q + 128`` with zero point 128, which is the same real number. After a
   Relu the lower half is empty, so the zero point becomes 0. Rounding to uint8 then clips negative values as the Relu does, and
   ONNX Runtime removes the Relu.
2. Round sums: in a TensorRT-legal model, a convolution before a residual Add stays float. A pair is inserted between the two.
   Its range follows from the ranges around it, so it does not clip anything that the next rounding would keep.

The numbers change in three ways:

(a) An activation after a Relu is clipped at ``255 * scale`` instead of ``127 * scale``, so inputs beyond the calibrated range give
    larger results.
(b) Integer kernels round the bias to a whole number of steps of the 32-bit sum and scale that sum once. A value near the limit
    between two 8-bit steps can therefore be rounded to the other step.
(c) The pairs of change 2 round again, by at most half a step.

Source: ONNX Runtime documentation, "Quantize ONNX Models", on U8S8 and on VNNI; Intel, Deep Learning Boost.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import onnx
import onnx_ir as ir

from course_lib._util.cpu_int8 import cpu_features as cpu_features  # part of this package's interface
from course_lib._util.cpu_int8 import has_byte_dot_products as lowering_helps
from course_lib.errors import CourseError
from course_lib.precision.quantization.qdq import LOWERED, constant_of, initializer, insert_pair, reject_lowered


def lower_for_onnxruntime(model: onnx.ModelProto, isa: Collection[str] | None = None) -> onnx.ModelProto:
    """The copy of a Q/DQ model that ONNX Runtime runs fast on this CPU, or `model` itself if `lowering_helps` is False.

    The copy is marked in its metadata (``course_lib.lowered_for``); the other passes of this package reject it.

    Args:
        model: a model with Q/DQ pairs as `insert_qdq` places them. It is not changed.
        isa: instruction sets to lower for, with names as in ``/proc/cpuinfo``; None means those of this machine.

    Raises:
        CourseError: the model was lowered before, or has no Q/DQ pairs.
    """
    reject_lowered(model)
    if not any(node.op_type == "QuantizeLinear" for node in model.graph.node):
        raise CourseError("the model has no Q/DQ pairs to lower: quantize it with insert_qdq first")
    if not lowering_helps(isa):
        return model
    opened = ir.from_proto(model)
    for node in list(opened.graph):
        if node.op_type == "Add" and not node.domain:
            _round_sum(node)
    zero_points: dict[int, ir.Value] = {}
    for node in list(opened.graph):
        if node.op_type == "QuantizeLinear" and not node.domain:
            _shift(node, zero_points)
    opened.metadata_props[LOWERED] = "onnxruntime"
    lowered = ir.to_proto(opened)
    onnx.checker.check_model(lowered)
    return lowered


def _shift(quantize: ir.Node, zero_points: dict[int, ir.Value]) -> None:
    """Turn one int8 activation into uint8, in its quantizer and all dequantizers. Weights stay signed, as x86 requires."""
    value, result = quantize.inputs[0], quantize.outputs[0]
    pair = (quantize, *result.consumers())
    if constant_of(value) is not None or result.is_graph_output() or not all(map(_is_symmetric, pair)):
        return
    shift = 0 if _is_relu(value) else 128
    if shift not in zero_points:
        zero_points[shift] = initializer(quantize, f"lowered/zero_point_{shift}", np.array(shift, np.uint8))
    for node in pair:
        node.replace_input_with(2, zero_points[shift])
    result.type = ir.TensorType(ir.DataType.UINT8)


def _round_sum(add: ir.Node) -> None:
    """Insert a pair between a quantized Conv and a residual Add, if the other input and the result of the Add are already rounded."""
    reader = _only_reader(add.outputs[0])
    relu = reader if reader is not None and reader.op_type == "Relu" else None
    rounding = _only_reader(relu.outputs[0]) if relu else reader
    if rounding is None or rounding.op_type != "QuantizeLinear" or not _is_symmetric(rounding):
        return
    for position in (0, 1):
        result, shortcut = add.inputs[position], _producer(add.inputs[1 - position])
        conv = _producer(result)
        if result is None or conv is None or conv.op_type != "Conv" or _only_reader(result) is not add:
            continue
        if not _is_symmetric(_producer(conv.inputs[0])) or shortcut is None or not _is_symmetric(shortcut):
            continue
        # Afterwards Relu(conv + shortcut) is rounded and clipped. Whatever conv adds outside of these bounds is lost there.
        behind_relu = _is_relu(_source(shortcut))
        highest = 127 * _scale(rounding) + (0 if behind_relu else 128) * _scale(shortcut)
        lowest = (0 if relu else -128) * _scale(rounding) - 127 * _scale(shortcut)
        scale = np.array((highest - lowest) / 254, np.float32)  # not 255: the zero point is rounded as well
        zero_point = np.array(np.rint(-lowest / scale), np.uint8)
        pair = insert_pair(add, result, scale, zero_point, name=str(result.name))
        add.replace_input_with(position, pair)
        return


def _is_symmetric(node: ir.Node | None) -> bool:
    """Whether `node` is a Q or a DQ with one constant scale and the signed zero point 0."""
    if node is None or node.op_type not in ("QuantizeLinear", "DequantizeLinear") or len(node.inputs) < 3:
        return False
    scale, zero_point = constant_of(node.inputs[1]), constant_of(node.inputs[2])
    if scale is None or zero_point is None:
        return False
    return scale.size == zero_point.size == 1 and zero_point.dtype == np.int8 and not zero_point.any()


def _scale(node: ir.Node) -> float:
    scale = constant_of(node.inputs[1])
    assert scale is not None
    return float(scale.reshape(()))


def _source(dequantize: ir.Node) -> ir.Value | None:
    """The tensor that a pair rounds, found from its second node."""
    quantize = _producer(dequantize.inputs[0])
    return quantize.inputs[0] if quantize is not None else None


def _is_relu(value: ir.Value | None) -> bool:
    node = _producer(value)
    return node is not None and node.op_type == "Relu" and not node.domain


def _producer(value: ir.Value | None) -> ir.Node | None:
    return value.producer() if value is not None else None


def _only_reader(value: ir.Value) -> ir.Node | None:
    """The one node that reads `value`; None if several do, or the graph itself."""
    readers = value.uses()
    return next(iter(readers)).node if len(readers) == 1 and not value.is_graph_output() else None
