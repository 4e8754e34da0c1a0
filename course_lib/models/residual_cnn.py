"""The course's image classifier: a small residual network for 32x32 digits.

It has only the operators that an inference optimizer handles best: convolution, batch norm, ReLU and residual adds.
Source: He, Zhang, Ren and Sun, Deep Residual Learning for Image Recognition (2015), the basic block of section 3.3.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from course_lib.models import weights
from course_lib.models.signature import Signature

CHANNELS = {"small": (16, 32, 64), "wide": (64, 128, 256)}


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions with a shortcut around them; ``(N, before, H, W)`` to ``(N, after, H/stride, W/stride)``."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(after)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or before != after:
            self.shortcut = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x: Tensor) -> Tensor:
        """``(N, before, H, W)`` to ``(N, after, H/stride, W/stride)``."""
        y = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class ResidualCNN(nn.Module):
    """``image`` ``(N, 1, 32, 32)`` to ``logits`` ``(N, 10)``: a stem and three residual blocks, the last two of stride 2."""

    def __init__(self, channels: tuple[int, int, int]) -> None:
        super().__init__()
        first, second, third = channels
        self.stem = nn.Conv2d(1, first, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(first)
        self.block1 = ResidualBlock(first, first, stride=1)
        self.block2 = ResidualBlock(first, second, stride=2)
        self.block3 = ResidualBlock(second, third, stride=2)
        self.head = nn.Linear(third, 10)

    def forward(self, image: Tensor) -> Tensor:
        """``(N, 1, 32, 32)`` to ``(N, 10)``."""
        x = torch.relu(self.norm(self.stem(image)))
        x = self.block3(self.block2(self.block1(x)))
        return self.head(x.mean(dim=(2, 3)))

    def signature(self) -> Signature:
        """Name and shape of the input and the output; the batch is dynamic."""
        return Signature(inputs={"image": ("batch", 1, 32, 32)}, outputs=("logits",))


def classifier(size: Literal["small", "wide"], *, pretrained: bool = True) -> ResidualCNN:
    """The digit classifier in eval mode, ``image`` ``(N, 1, 32, 32)`` to ``logits`` ``(N, 10)``.

    Args:
        size: "small" has 16, 32 and 64 channels and 77,754 parameters, "wide" 64, 128 and 256 channels and 1,226,442. Both
            get .996 of the 450 held-out digits right: "wide" exists for its arithmetic, not for its accuracy.
        pretrained: load the shipped weights. Otherwise torch's global random generator initializes them.

    Raises:
        ValueError: an unknown size.
    """
    if size not in CHANNELS:
        raise ValueError(f"size must be one of {', '.join(CHANNELS)}, got {size!r}")
    model = ResidualCNN(CHANNELS[size])
    if pretrained:
        weights.load(model, size)
    return model.eval()
