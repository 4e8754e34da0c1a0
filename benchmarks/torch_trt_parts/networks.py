"""The networks of the sections: lecture 13's own, and small ones that show one behavior each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Island(nn.Module):
    """Two convolutional halves around one operator without a converter in Torch-TensorRT 2.2, ``cumprod``."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = _half(3, 16), _half(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.cumprod(torch.sigmoid(self.before(x)) + 0.5, dim=3)
        return self.after(x).mean((2, 3))


def _half(inputs: int, outputs: int) -> nn.Sequential:
    widths = ((inputs, 16), (16, 16), (16, outputs))
    return nn.Sequential(*(layer for a, b in widths for layer in (nn.Conv2d(a, b, 3, padding=1), nn.ReLU())))


class Centered(nn.Module):
    """Lecture 13's classifier with each channel centered on its median after the first block."""

    def __init__(self, net: Any) -> None:
        super().__init__()
        self.net = net

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        net = self.net
        x = net.block1(torch.relu(net.norm(net.stem(image))))
        x = x - x.flatten(2).median(-1).values[..., None, None]
        logits: torch.Tensor = net.head(net.block3(net.block2(x)).mean((2, 3)))
        return logits


class Attention(nn.Module):
    """Self-attention in several spellings that mean the same.

    Args:
        style: ``"fused qkv, unbind"``, ``"fused qkv, chunk"``, ``"three projections"`` or ``"fused qkv, written out"``.
    """

    def __init__(self, style: str, width: int = 256, heads: int = 4) -> None:
        super().__init__()
        self.style, self.heads = style, heads
        self.qkv = nn.Linear(width, 3 * width)
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))

    def forward(self, x: torch.Tensor, order: Sequence[int] = (0, 1, 2)) -> torch.Tensor:
        """`order` says which projection takes the part of query, key and value."""
        batch, length, width = x.shape
        each = width // self.heads
        parts: Sequence[torch.Tensor]
        if self.style == "three projections":
            parts = [f(x).reshape(batch, length, self.heads, each).permute(0, 2, 1, 3) for f in (self.q, self.k, self.v)]
        elif self.style == "fused qkv, chunk":
            parts = [part.reshape(batch, length, self.heads, each).permute(0, 2, 1, 3) for part in self.qkv(x).chunk(3, dim=2)]
        else:
            parts = self.qkv(x).reshape(batch, length, 3, self.heads, each).permute(2, 0, 3, 1, 4).unbind(0)
        q, k, v = (parts[i] for i in order)
        if self.style == "fused qkv, written out":
            y = torch.softmax(q @ k.transpose(-2, -1) / each**0.5, -1) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v)
        return y.permute(0, 2, 1, 3).reshape(batch, length, width)


def made(factory: Callable[[], nn.Module]) -> nn.Module:
    """A module with fixed random weights, in eval mode on the device."""
    torch.manual_seed(0)
    return factory().eval().to(DEVICE)


def lecture_classifier() -> nn.Module:
    """Lecture 13's small classifier."""
    from course_lib.models import classifier

    return classifier("small").eval().to(DEVICE)


def pictures(count: int, seed: int = 1) -> torch.Tensor:
    """Smooth images in place of digits, whose data set is not in this interpreter; float32 in [0, 1], ``(count, 1, 32, 32)``."""
    coarse = torch.rand(count, 1, 8, 8, generator=torch.Generator().manual_seed(seed))
    return F.interpolate(coarse, scale_factor=4, mode="bilinear").to(DEVICE)


def normal(*shape: int, seed: int = 1) -> torch.Tensor:
    """Normally distributed float32 numbers on the device."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def tensor_of(answer: Any) -> torch.Tensor:
    """A module's only output, which a compiled graph module returns in a tuple."""
    tensor: torch.Tensor = answer[0] if isinstance(answer, (tuple, list)) else answer
    return tensor


def relative_error(got: Any, want: torch.Tensor) -> float:
    """Norm of the difference over the norm of `want`."""
    got, want = tensor_of(got).float(), want.float()
    return float((got - want).norm() / want.norm())
