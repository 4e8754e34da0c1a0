"""The network of lab 02: a digit classifier that is correct and slow. You may read it, take it apart and rewrite it.

Several people worked on it, each with a reason, and nobody reviewed the whole network. It consists of parts that can be replaced:
``network.block1.act = nn.ReLU()``. Nine of its parts are suspects, and some of them are innocent.
"""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import Tensor, nn

from course_lib.models import Signature, classifier
from course_lib.models.residual_cnn import ResidualBlock


class Standardize(nn.Module):
    """Gives every image the same mean and contrast, because scanners differ. ``(N, 1, 32, 32)``, in double precision to be safe."""

    MEAN, DEVIATION, EPS = 0.31, 0.32, 1e-5  # the first two are those of all digits

    def forward(self, image: Tensor) -> Tensor:
        """``(N, 1, 32, 32)`` to ``(N, 1, 32, 32)``, float32 both."""
        x = image.double()
        mean = x.mean(dim=(1, 2, 3), keepdim=True)
        variance = ((x - mean) ** 2).mean(dim=(1, 2, 3), keepdim=True)
        x = (x - mean) / torch.sqrt(variance + self.EPS)
        return x.float() * self.DEVIATION + self.MEAN


class PrimitiveNorm(nn.Module):
    """Batch norm with its running statistics, as the paper writes it. ``(N, C, H, W)``."""

    mean: Tensor
    variance: Tensor
    gamma: Tensor
    beta: Tensor

    def __init__(self, norm: nn.BatchNorm2d) -> None:
        super().__init__()
        statistics = {"mean": norm.running_mean, "variance": norm.running_var, "gamma": norm.weight, "beta": norm.bias}
        for name, values in statistics.items():
            assert values is not None
            self.register_buffer(name, values.detach().clone()[:, None, None])
        self.eps = norm.eps

    def forward(self, x: Tensor) -> Tensor:
        """``(N, C, H, W)`` to ``(N, C, H, W)``."""
        return (x - self.mean) / torch.sqrt(self.variance + self.eps) * self.gamma + self.beta


class ChannelsLastNorm(PrimitiveNorm):
    """A `PrimitiveNorm` ported from a framework with channels last: it transposes to that layout and back. ``(N, C, H, W)``."""

    def __init__(self, norm: nn.BatchNorm2d) -> None:
        super().__init__(norm)
        for name, values in self.named_buffers():
            setattr(self, name, values.flatten())

    def forward(self, x: Tensor) -> Tensor:
        """``(N, C, H, W)`` to ``(N, C, H, W)``."""
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class WhereReLU(nn.Module):
    """x where x is positive, 0 elsewhere."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape to the same shape."""
        return torch.where(x > 0, x, 0.0)


class TwinConv(nn.Module):
    """The mean of two convolutions: the weights of two training runs, because an ensemble is better than one."""

    def __init__(self, first: nn.Conv2d, second: nn.Conv2d) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x: Tensor) -> Tensor:
        """``(N, before, H, W)`` to ``(N, after, H/stride, W/stride)``."""
        return (self.first(x) + self.second(x)) / 2


class SplitConv(nn.Module):
    """One convolution as two, each with half of the output channels, as in code written for two GPUs."""

    def __init__(self, left: nn.Conv2d, right: nn.Conv2d) -> None:
        super().__init__()
        self.left, self.right = left, right

    def forward(self, x: Tensor) -> Tensor:
        """``(N, before, H, W)`` to ``(N, after, H/stride, W/stride)``."""
        return torch.cat([self.left(x), self.right(x)], dim=1)


class StackedSum(nn.Module):
    """The end of a residual block, for any number of branches. Each ``(N, C, H, W)``."""

    def forward(self, *branches: Tensor) -> Tensor:
        """Any number of ``(N, C, H, W)`` to one ``(N, C, H, W)``."""
        return torch.relu(torch.stack(branches).sum(dim=0))


class FlatMean(nn.Module):
    """Global average pooling over flat pixels: ``(N, C, H, W)`` to ``(N, C)``."""

    def __init__(self, channels: int, pixels: int) -> None:
        super().__init__()
        self.channels, self.pixels = channels, pixels

    def forward(self, x: Tensor) -> Tensor:
        """``(N, C, H, W)`` to ``(N, C)``."""
        return x.reshape(-1, self.channels, self.pixels).mean(dim=2)


class Block(nn.Module):
    """A residual block of `classifier`, in parts; ``(N, before, H, W)`` to ``(N, after, H/stride, W/stride)``."""

    def __init__(self, trained: ResidualBlock) -> None:
        super().__init__()
        self.conv1: nn.Module = trained.conv1
        self.norm1: nn.Module = trained.norm1
        self.act: nn.Module = WhereReLU()
        self.conv2: nn.Module = trained.conv2
        self.norm2: nn.Module = trained.norm2
        self.shortcut: nn.Module = trained.shortcut
        self.join: nn.Module = StackedSum()

    def forward(self, x: Tensor) -> Tensor:
        """``(N, before, H, W)`` to ``(N, after, H/stride, W/stride)``."""
        y = self.act(self.norm1(self.conv1(x)))
        return self.join(self.norm2(self.conv2(y)), self.shortcut(x))


class SlowClassifier(nn.Module):
    """``image`` ``(N, 1, 32, 32)`` to ``logits`` ``(N, 10)``."""

    def __init__(self) -> None:
        super().__init__()
        trained = classifier("small")
        self.standardize: nn.Module = Standardize()
        self.stem: nn.Module = trained.stem
        self.norm: nn.Module = PrimitiveNorm(trained.norm)
        self.act: nn.Module = WhereReLU()
        self.block1, self.block2, self.block3 = (Block(b) for b in (trained.block1, trained.block2, trained.block3))
        self.block1.norm1 = ChannelsLastNorm(trained.block1.norm1)
        self.block2.conv1 = TwinConv(trained.block2.conv1, _second_run(trained.block2.conv1))
        self.block3.conv1 = SplitConv(*_halves(trained.block3.conv1))
        self.pool: nn.Module = FlatMean(64, 8 * 8)
        self.head: nn.Module = nn.Sequential(trained.head, _center_and_cool())

    def forward(self, image: Tensor) -> Tensor:
        """``(N, 1, 32, 32)`` to ``(N, 10)``."""
        x = self.act(self.norm(self.stem(self.standardize(image))))
        x = self.block3(self.block2(self.block1(x)))
        return self.head(self.pool(x))

    def signature(self) -> Signature:
        """Name and shape of the input and the output; the batch is dynamic."""
        return Signature(inputs={"image": ("batch", 1, 32, 32)}, outputs=("logits",))


def slow_classifier() -> SlowClassifier:
    """The network as it was given, trained and in eval mode."""
    return SlowClassifier().eval().requires_grad_(False)


def _second_run(first: nn.Conv2d) -> nn.Conv2d:
    """Slightly different weights, as from another training run. They are not trained but noise, the same on every machine."""
    noise = np.random.RandomState(2).standard_normal(tuple(first.weight.shape)).astype(np.float32)
    second = copy.deepcopy(first)
    second.weight.data += 0.2 * first.weight.data.std() * torch.from_numpy(noise)
    return second


def _halves(whole: nn.Conv2d) -> tuple[nn.Conv2d, nn.Conv2d]:
    """A convolution without bias cut into two, along its output channels."""

    def part(weight: Tensor) -> nn.Conv2d:
        half = copy.deepcopy(whole)
        half.weight, half.out_channels = nn.Parameter(weight.clone()), len(weight)
        return half

    left, right = whole.weight.data.chunk(2)
    return part(left), part(right)


def _center_and_cool() -> nn.Linear:
    """A matrix that subtracts the mean of the logits and divides by temperature 2: same answers, lower confidence."""
    layer = nn.Linear(10, 10, bias=False)
    layer.weight.data = (torch.eye(10) - 0.1) / 2
    return layer
