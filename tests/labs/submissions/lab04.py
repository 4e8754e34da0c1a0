"""An answer to lab 04 that is right and not the reference's, and mistakes that learners make."""

from __future__ import annotations

import onnx
import torch
from torch import nn

from course_lib.labs.lab04_mixed_precision import given
from course_lib.labs.lab04_mixed_precision.given import OPSET
from course_lib.labs.lab04_mixed_precision.network import Norm, loud_encoder
from course_lib.labs.lab04_mixed_precision.reference import KEEP, scale_queries
from course_lib.models import export_onnx
from course_lib.precision import cast

SCORES = ("/blocks.2/attention/MatMul", "/blocks.2/attention/Div")
GAINED = KEEP[-2:]
VANISHING = KEEP[:4]  # the norm whose variance is below the smallest FP16 number


def scaled() -> onnx.ModelProto:
    """The network with its scores scaled before the product, float32."""
    network = loud_encoder()
    scale_queries(network)
    return export_onnx(network, opset=OPSET)


def with_layer_norms() -> onnx.ModelProto:
    """Nothing kept but squares, and those as a LayerNormalization that computes in FP32 inside."""
    network = loud_encoder()
    attention, mlp = network.blocks[2].attention, network.blocks[1].mlp
    attention.scores = lambda q, k: (q / attention.temperature) @ k.transpose(-1, -2)
    mlp.down.weight.data *= mlp.gain
    mlp.gain = torch.ones_like(mlp.gain)
    for name, module in list(network.named_modules()):
        if isinstance(module, Norm):
            norm = nn.LayerNorm(128, eps=module.eps / module.scale**2)  # the operator needs no scaled input
            norm.weight, norm.bias = module.weight, module.bias
            network.set_submodule(name, norm)
    return cast(export_onnx(network, opset=OPSET), "fp16")


def whole_blocks() -> onnx.ModelProto:
    """Two of four blocks in FP32."""
    model = scaled()
    kept = [node.name for node in model.graph.node if node.name.startswith(("/blocks.1/", "/blocks.2/"))]
    return cast(model, "fp16", keep=[*KEEP, *kept])


# mistake: the model, and for error and kernels the tier and words of the message or the hint
MISTAKES = {
    "a plain cast": (
        lambda: cast(given.network(), "fp16"),
        ("none", "requests with NaN or infinity is 20 of 20, first 1 digits of 16 rows"),
        ("none", "answers of the given network"),
    ),
    "FP32 called FP16": (given.network, ("none", "none of 63 kernels computes in FP16"), ("none", "statement about the graph")),
    "attention kept in FP32": (
        lambda: cast(given.network(), "fp16", keep=[*KEEP, *SCORES]),
        ("full", ""),
        ("partial", "attentions in one FP16 kernel is 3, all points need at least 4"),
    ),
    "whole blocks kept in FP32": (whole_blocks, ("none", "kernels of an FP16 engine is"), ("none", "Which nodes break alone?")),
    "only what gives NaN is kept": (
        lambda: cast(scaled(), "fp16", keep=[*VANISHING, *GAINED]),
        ("none", "zero, not NaN"),
        ("none", "zero, not NaN"),
    ),
}
