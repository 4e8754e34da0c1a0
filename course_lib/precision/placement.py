"""One Q/DQ pair anywhere: to see what a compiler makes of a pair in a place where `insert_qdq` would not put it."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

from course_lib.errors import CourseError
from course_lib.precision.qdq import scale_of


def quantize_tensor(model: onnx.ModelProto, tensor: str, amax: float) -> onnx.ModelProto:
    """A copy of a model in which all readers of one tensor get its INT8 copy, as does the caller where it is an output.

    Args:
        model: float32, or with pairs already. It is not changed.
        tensor: written by a node.
        amax: the largest magnitude that INT8 shall represent.

    Raises:
        CourseError: no node writes the tensor, a pair rounds it already, or the range is not positive and finite.
    """
    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    graph = copied.graph
    place = next((index for index, node in enumerate(graph.node) if tensor in node.output), None)
    if place is None:
        raise CourseError(f"no node of the model writes the tensor {tensor!r}")
    if any(node.op_type == "QuantizeLinear" and node.input[0] == tensor for node in graph.node):
        raise CourseError(f"the tensor {tensor!r} has a pair already")
    exact, rounded = tensor, f"{tensor}/dequantize"
    if any(output.name == tensor for output in graph.output):  # the caller knows it by this name, so the pair's result gets it
        exact, rounded = f"{tensor}/exact", tensor
        outputs = graph.node[place].output
        outputs[list(outputs).index(tensor)] = exact
    for node in graph.node:
        node.input[:] = [rounded if name == tensor else name for name in node.input]
    parameters = [f"{tensor}/scale", f"{tensor}/zero_point"]
    for name, value in zip(parameters, (scale_of(amax), np.zeros((), np.int8)), strict=True):
        graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    integers = f"{tensor}/quantize"
    graph.node.insert(place + 1, helper.make_node("QuantizeLinear", [exact, *parameters], [integers], name=integers))
    dequantize = helper.make_node("DequantizeLinear", [integers, *parameters], [rounded], name=f"{tensor}/dequantize")
    graph.node.insert(place + 2, dequantize)
    onnx.checker.check_model(copied)
    return copied
