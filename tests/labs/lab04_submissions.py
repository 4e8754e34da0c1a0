"""A right answer to lab 04 that is not the reference's."""

from __future__ import annotations

import onnx
import torch
from torch import nn

from course_lib.labs.lab04_mixed_precision.network import Norm, loud_encoder
from course_lib.labs.lab04_mixed_precision.reference import OPSET
from course_lib.models import export_onnx
from course_lib.precision import cast


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
