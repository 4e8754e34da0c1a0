"""Models that nobody sends by mistake: right in everything but one thing."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def weights_in_a_file_elsewhere(model: onnx.ModelProto) -> None:
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../../../etc/passwd")


def weights_larger_than_any_memory(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].dims[:] = [1 << 40, 1 << 20]


def images_larger_than_any_memory(model: onnx.ModelProto) -> None:
    for dimension in model.graph.input[0].type.tensor_type.shape.dim[2:]:
        dimension.dim_value = 1 << 30


def a_million_answers_for_each_image(model: onnx.ModelProto) -> None:
    _answer_with(model, helper.make_node("Expand", ["column", "many"], ["logits"], name="expand"))
    model.graph.initializer.append(numpy_helper.from_array(np.array([1, 1, 1_000_000]), "many"))
    shape = ["batch", 10, 1_000_000]
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("logits", TensorProto.FLOAT, shape))


def no_numbers(model: onnx.ModelProto) -> None:
    _answer_with(model, helper.make_node("Squeeze", ["nothing", "last"], ["logits"], name="squeeze"))
    model.graph.node.insert(len(model.graph.node) - 1, helper.make_node("Mul", ["column", "nan"], ["nothing"], name="mul"))
    model.graph.initializer.append(numpy_helper.from_array(np.array(np.nan, np.float32), "nan"))


def _answer_with(model: onnx.ModelProto, node: onnx.NodeProto) -> None:
    """Let `node` make the logits from ``column``, the true ones of shape (N, 10, 1)."""
    for other in model.graph.node:
        other.output[:] = ["true_logits" if name == "logits" else name for name in other.output]
    model.graph.initializer.append(numpy_helper.from_array(np.array([2]), "last"))
    model.graph.node.append(helper.make_node("Unsqueeze", ["true_logits", "last"], ["column"], name="unsqueeze"))
    model.graph.node.append(node)


def a_name_without_end(model: onnx.ModelProto) -> None:
    model.graph.node[0].name = "endless" * 10_000


def a_name_of_two_lines(model: onnx.ModelProto) -> None:
    model.graph.node[0].name = "one\ntwo <script>"


Change = Callable[[onnx.ModelProto], None]
CHANGES: tuple[Change, ...] = (
    weights_in_a_file_elsewhere,
    weights_larger_than_any_memory,
    images_larger_than_any_memory,
    a_million_answers_for_each_image,
    no_numbers,
    a_name_without_end,
    a_name_of_two_lines,
)


def changed(model: onnx.ModelProto, change: Change) -> onnx.ModelProto:
    """A copy with one change."""
    copied = copy.deepcopy(model)
    change(copied)
    return copied
