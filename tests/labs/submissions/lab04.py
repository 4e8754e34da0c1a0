"""Answers to lab 04 that are not the reference's: a right one, and some with attentions for show."""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence

import onnx
import torch
from torch import nn

from course_lib.labs.lab04_mixed_precision.network import Norm, loud_encoder
from course_lib.labs.lab04_mixed_precision.reference import KEEP, OPSET, scale_queries
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


Show = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""From the values and a split attention's answer to what the block goes on with. It holds an attention that the compiler fuses."""

_CODES = (
    2 * torch.randn(48, 32, generator=torch.Generator().manual_seed(1)).sign()
)  # a row for each position, far from all others


def small_share(values: torch.Tensor, mixed: torch.Tensor) -> torch.Tensor:
    """Changes the logits less than rounding."""
    return mixed + _fused(0.01 * values, values) * 2.0**-12


def known_answer(values: torch.Tensor, mixed: torch.Tensor) -> torch.Tensor:
    """Looks at all rows alike, and the mean over all rows is taken away again."""
    return mixed + 0.5 * (_fused(0.001 * values, values) - values.mean(dim=-2, keepdim=True))


def known_factor(values: torch.Tensor, mixed: torch.Tensor) -> torch.Tensor:
    """The same as a factor, which is 1."""
    positive = values * values + 100
    return mixed * (_fused(0.001 * values, positive) / positive.mean(dim=-2, keepdim=True))


def passed_through(values: torch.Tensor, mixed: torch.Tensor) -> torch.Tensor:
    """Each row looks at itself only, so the answer is what the split attention has computed."""
    return _fused(_CODES[: values.shape[-2]] + 1e-6 * values, mixed)


def _fused(codes: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    return (codes @ codes.transpose(-1, -2)).softmax(dim=-1) @ values


def with_an_attention_for_show(show: Show = small_share, blocks: Sequence[int] = (2,)) -> onnx.ModelProto:
    """These blocks mix their rows by products and sums in FP32, beside a fused attention."""

    def forward(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
        n, s, _ = x.shape
        q, k, v = self.qkv(x).view(n, s, self.heads, 3 * self.width).transpose(1, 2).split(self.width, dim=-1)
        weights = ((q.unsqueeze(-2) * k.unsqueeze(-3)).sum(-1) / self.temperature).softmax(dim=-1)
        mixed = show(v, (weights.unsqueeze(-1) * v.unsqueeze(-3)).sum(-2))
        out: torch.Tensor = self.out(mixed.transpose(1, 2).reshape(n, s, self.heads * self.width))
        return out

    network = loud_encoder()
    scale_queries(network)
    for block in blocks:
        attention = network.blocks[block].attention
        attention.forward = types.MethodType(forward, attention)
    model = export_onnx(network, opset=OPSET)
    names, scores = [node.name for node in model.graph.node], []
    for block in blocks:
        inside = [node for node in model.graph.node if node.name.startswith(f"/blocks.{block}/attention/")]
        before = inside[: [node.op_type for node in inside].index("Softmax")]
        scores += [node.name for node in before if node.op_type in ("Mul", "ReduceSum", "Div")]
    return cast(model, "fp16", keep=[*(name for name in KEEP if name in names), *scores])
