"""The network of lab 04: an encoder that is right in FP32. You may read it, take it apart and rewrite it.

Its properties are known from large language models. In exact arithmetic they do not matter, because later operations undo each large or
small factor. How large the factors are was found in training: look at the module's attributes, or measure the tensors.
"""

from __future__ import annotations

import json
from functools import partial
from importlib.resources import files
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from course_lib.models import encoder
from course_lib.models.transformer import Encoder, EncoderBlock

CHANNELS = 6  # of an MLP with a gain


class Norm(nn.Module):
    """Layer norm as the paper writes it, over the last axis.

    Args:
        stream: factor of the residual stream.
        scale: multiplies the input. The result does not depend on it, because the norm divides it out again.
    """

    def __init__(self, trained: nn.LayerNorm, stream: float, scale: float = 1.0) -> None:
        super().__init__()
        self.weight, self.bias, self.scale = trained.weight, trained.bias, scale
        self.eps = trained.eps * (stream * scale) ** 2  # relative to the stream it is what it was

    def forward(self, x: Tensor) -> Tensor:
        """``(N, S, width)`` to ``(N, S, width)``."""
        x = x if self.scale == 1 else x * self.scale
        centered = x - x.mean(dim=-1, keepdim=True)
        variance = (centered * centered).mean(dim=-1, keepdim=True)
        return centered / torch.sqrt(variance + self.eps) * self.weight + self.bias


class Attention(nn.Module):
    """Self-attention with a learned temperature for its scores; ``(N, S, width)``."""

    def __init__(self, trained: EncoderBlock, factor: float) -> None:
        super().__init__()
        self.heads, self.qkv, self.out = trained.heads, trained.qkv, trained.out
        self.width = self.out.in_features // self.heads  # of one head
        self.temperature = self.width**0.5 * factor
        for values in (self.qkv.weight.data, self.qkv.bias.data):
            values.unflatten(0, (self.heads, 3, self.width))[:, :2] *= factor**0.5  # queries and keys, not values

    def forward(self, x: Tensor) -> Tensor:
        """``(N, S, width)`` to ``(N, S, width)``."""
        n, s, _ = x.shape
        q, k, v = self.qkv(x).view(n, s, self.heads, 3 * self.width).transpose(1, 2).split(self.width, dim=-1)
        mixed = self.scores(q, k).softmax(dim=-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(n, s, self.heads * self.width))

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        """Attention scores of each token for each other one; from ``(N, heads, S, width)`` to ``(N, heads, S, S)``."""
        return q @ k.transpose(-1, -2) / self.temperature


class GainedMLP(nn.Module):
    """A two-layer perceptron with a learned gain for each inner channel; ``(N, S, width)``."""

    gain: Tensor

    def __init__(self, trained: EncoderBlock, factor: float, steepness: float) -> None:
        super().__init__()
        self.up, self.down = trained.up, trained.down
        self.activation = partial(swish, steepness=steepness) if steepness else gelu
        busiest = self.down.weight.data.norm(dim=0).topk(CHANNELS).indices
        gain = 1 + 0.1 * _noise(self.up.out_features)
        gain[busiest] *= factor
        self.down.weight.data /= gain
        self.register_buffer("gain", gain)

    def forward(self, x: Tensor) -> Tensor:
        """``(N, S, width)`` to ``(N, S, width)``."""
        return self.down(self.activation(self.up(x)) * self.gain)


def swish(x: Tensor, steepness: float) -> Tensor:
    """``x`` times the sigmoid of ``steepness * x``, the sigmoid in primitives; any shape to the same shape."""
    return x / (1 + torch.exp(-steepness * x))


class Block(nn.Module):
    """Attention and perceptron, each after a norm and inside a residual connection; ``(N, S, width)``."""

    def __init__(self, trained: EncoderBlock, stream: float, found: dict[str, float]) -> None:
        super().__init__()
        self.norm1: nn.Module = Norm(trained.norm1, stream)
        self.attention: nn.Module = Attention(trained, found["attention"])
        self.norm2: nn.Module = Norm(trained.norm2, stream, found["norm2"])
        self.mlp: nn.Module = GainedMLP(trained, found["gain"], found["activation"])

    def forward(self, x: Tensor) -> Tensor:
        """``(N, S, width)`` to ``(N, S, width)``."""
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class LoudEncoder(Encoder):
    """``tokens`` ``(N, S, 32)`` to ``logits`` ``(N, 10)``, the digits encoder's answers."""

    def __init__(self, trained: Encoder, found: dict[str, Any]) -> None:
        nn.Module.__init__(self)  # every part is made of the trained encoder's
        stream: float = found["stream"]
        for layer in trained.modules():
            if isinstance(layer, nn.Linear):  # another training run: near the shipped weights, and not the same
                layer.weight.data += 0.1 * layer.weight.data.std() * _noise(*layer.weight.shape)
        blocks = [block for block in trained.blocks if isinstance(block, EncoderBlock)]
        for writer in (trained.embed, *(layer for block in blocks for layer in (block.out, block.down))):
            writer.weight.data *= stream
            writer.bias.data *= stream
        self.embed = trained.embed
        self.register_buffer("positions", trained.positions * stream)
        self.blocks = nn.ModuleList(Block(block, stream, each) for block, each in zip(blocks, found["blocks"], strict=True))
        self.norm = Norm(trained.norm, stream)  # type: ignore[assignment]  # written out in primitives
        self.head = trained.head


def loud_encoder() -> LoudEncoder:
    """The given network, trained and in eval mode."""
    text = files(__package__).joinpath("expected.json").read_text(encoding="utf-8")
    return LoudEncoder(encoder(), json.loads(text)["network"]).eval().requires_grad_(False)


def _noise(*shape: int) -> Tensor:
    """Normally distributed values, not trained, and the same on every machine."""
    return torch.from_numpy(np.random.RandomState(4).standard_normal(shape).astype(np.float32))
