"""The operator `Attention` of a decoder written out as products and a softmax, for comparison with the operator."""

from __future__ import annotations

import copy
from typing import Any, Literal

import numpy as np
import onnx
from onnx import helper, numpy_helper


def as_pattern(model: onnx.ModelProto, *, groups: Literal["repeat", "reshape"]) -> onnx.ModelProto:
    """A decoder from `export_cached` for a batch of 1, whose attention is `MatMul`, `Add`, `Softmax` and `MatMul`. It computes the same.

    Args:
        model: it is not changed.
        groups: what to do with KV heads that serve several heads of queries. "repeat" repeats them until each query head has
            its own. "reshape" gives the queries a fifth dimension, and repeats nothing.
    """
    model = copy.deepcopy(model)
    graph = model.graph
    known = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    typed = (*known.input, *known.value_info, *known.output)
    shapes = {value.name: [one.dim_value for one in value.type.tensor_type.shape.dim] for value in typed}
    attentions = [node for node in graph.node if node.op_type == "Attention"]
    heads, kv_heads, size = (
        shapes[attentions[0].input[0]][1],
        shapes[attentions[0].input[1]][1],
        shapes[attentions[0].input[0]][3],
    )
    dtype = next(value.type.tensor_type.elem_type for value in graph.input if value.name == "past_key_0")
    constants = {"/scale": np.array(size**-0.5, helper.tensor_dtype_to_np_dtype(dtype))}
    if groups == "repeat":
        constants["/repeated"] = np.repeat(np.arange(kv_heads), heads // kv_heads)
    else:
        constants["/grouped"] = np.array([1, kv_heads, heads // kv_heads, -1, size])
        constants["/merged"], constants["/fifth"] = np.array([1, heads, -1, size]), np.array([2])
    graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in constants.items())
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        nodes += _written_out(node, groups) if node.op_type == "Attention" else [node]
    del graph.node[:]
    graph.node.extend(nodes)
    onnx.checker.check_model(model, full_check=True)
    return model


def _written_out(attention: onnx.NodeProto, groups: str) -> list[onnx.NodeProto]:
    query, key, value, mask = attention.input
    nodes: list[onnx.NodeProto] = []

    def add(name: str, operator: str, *inputs: str, result: str = "", **attributes: Any) -> str:
        name = f"{attention.name}/{name}"
        nodes.append(helper.make_node(operator, inputs, [result or f"{name}_output_0"], name=name, **attributes))
        return result or f"{name}_output_0"

    query = add("scale", "Mul", query, "/scale")
    if groups == "repeat":
        key = add("repeat_key", "Gather", key, "/repeated", axis=1)
        value = add("repeat_value", "Gather", value, "/repeated", axis=1)
        order = [0, 1, 3, 2]
    else:
        query = add("group", "Reshape", query, "/grouped")
        key, value, mask = (
            add(f"fifth_{name}", "Unsqueeze", tensor, "/fifth")
            for name, tensor in (("key", key), ("value", value), ("mask", mask))
        )
        order = [0, 1, 2, 4, 3]
    scores = add("scores", "MatMul", query, add("turn", "Transpose", key, perm=order))
    weights = add("softmax", "Softmax", add("masked", "Add", scores, mask), axis=-1)
    if groups == "repeat":
        add("sum", "MatMul", weights, value, result=attention.output[0])
    else:
        add("merge", "Reshape", add("sum", "MatMul", weights, value), "/merged", result=attention.output[0])
    return nodes
