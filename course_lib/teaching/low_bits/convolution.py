"""One convolution with a ReLU, in FP16 or in FP8; for lecture 16."""

from __future__ import annotations

from typing import Literal

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

CHANNELS, PIXELS, BATCH = 64, 32, 8


def one_convolution(kind: Literal["FP16", "FP8"]) -> onnx.ModelProto:
    """In FP8, weights are stored as codes, and the input has a Q/DQ pair. Everything else is FP16."""
    weight = np.random.default_rng(0).standard_normal((CHANNELS, CHANNELS, 3, 3)).astype(np.float32) / 24
    scale, read = np.abs(weight).max() / 448, "x"
    half = {"weight": weight} if kind == "FP16" else {"input_scale": 4 / 448, "weight_scale": scale}
    constants = [numpy_helper.from_array(np.asarray(value, np.float16), name) for name, value in half.items()]
    nodes = []
    if kind == "FP8":
        codes = (weight / scale).astype(ml_dtypes.float8_e4m3fn)
        for name, shape, data in (("codes", weight.shape, codes.tobytes()), ("zero", (), b"\0")):
            constants.append(helper.make_tensor(name, TensorProto.FLOAT8E4M3FN, shape, data, raw=True))
        nodes = [
            helper.make_node("QuantizeLinear", ["x", "input_scale", "zero"], ["quantized"], "/quantize"),
            helper.make_node("DequantizeLinear", ["quantized", "input_scale", "zero"], ["restored"], "/dequantize"),
            helper.make_node("DequantizeLinear", ["codes", "weight_scale"], ["weight"], "/weight"),
        ]
        read = "restored"
    nodes.append(helper.make_node("Conv", [read, "weight"], ["sum"], "/conv", pads=[1] * 4))
    nodes.append(helper.make_node("Relu", ["sum"], ["y"], "/relu"))
    ends = [helper.make_tensor_value_info(end, TensorProto.FLOAT16, [BATCH, CHANNELS, PIXELS, PIXELS]) for end in "xy"]
    graph = helper.make_graph(nodes, "one_convolution", ends[:1], ends[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
