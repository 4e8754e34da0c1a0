"""Lab 02's network, rewritten: each part that prevents fusion is replaced by one that computes the same function."""

from __future__ import annotations

from collections.abc import Collection
from functools import singledispatch

import torch
from torch import Tensor, nn

from course_lib.labs.lab02_fusion.causes import PARTS
from course_lib.labs.lab02_fusion.network import (
    FlatMean,
    PrimitiveNorm,
    SlowClassifier,
    SplitConv,
    StackedSum,
    Standardize,
    TwinConv,
    WhereReLU,
    slow_classifier,
)


def rewritten(*, still: Collection[str] = ()) -> SlowClassifier:
    """The network with every part of `PARTS` replaced, in eval mode; the parts of the suspects `still` stay as given."""
    network = slow_classifier()
    for suspect, paths in PARTS.items():
        for path in () if suspect in still else paths:
            network.set_submodule(path, repaired(network.get_submodule(path)))
    return network.eval().requires_grad_(False)


class FloatStandardize(Standardize):
    """The same in single precision, which is what TensorRT computes for a double anyway."""

    def forward(self, image: Tensor) -> Tensor:
        """``(N, 1, 32, 32)`` to ``(N, 1, 32, 32)``."""
        mean = image.mean(dim=(1, 2, 3), keepdim=True)
        variance = ((image - mean) ** 2).mean(dim=(1, 2, 3), keepdim=True)
        return (image - mean) / torch.sqrt(variance + self.EPS) * self.DEVIATION + self.MEAN


class AddReLU(nn.Module):
    """A sum and its ReLU, which can be the end of a convolution's kernel."""

    def forward(self, y: Tensor, shortcut: Tensor) -> Tensor:
        """Two tensors of one shape to a third of that shape."""
        return torch.relu(y + shortcut)


class Mean(nn.Module):
    """``(N, C, H, W)`` to ``(N, C)``."""

    def forward(self, x: Tensor) -> Tensor:
        """``(N, C, H, W)`` to ``(N, C)``."""
        return x.mean(dim=(2, 3))


@singledispatch
def repaired(part: nn.Module) -> nn.Module:
    """A part that computes the same function in fewer kernels.

    Raises:
        TypeError: the part is not one of the suspects.
    """
    raise TypeError(f"nothing is known against {type(part).__name__}")


@repaired.register
def _(part: Standardize) -> nn.Module:
    return FloatStandardize()


@repaired.register
def _(part: PrimitiveNorm) -> nn.Module:
    """Statistics by channel, whatever the layout, are a batch norm. The exporter folds it into the convolution before it."""
    norm = nn.BatchNorm2d(part.mean.numel(), eps=part.eps)
    norm.weight.data, norm.bias.data = part.gamma.flatten(), part.beta.flatten()
    norm.running_mean, norm.running_var = part.mean.flatten(), part.variance.flatten()
    return norm


@repaired.register
def _(part: WhereReLU) -> nn.Module:
    return nn.ReLU()


@repaired.register
def _(part: TwinConv) -> nn.Module:
    """Convolution is linear in its weights: the mean of two convolutions is one convolution with the mean of the weights."""
    part.first.weight.data = (part.first.weight.data + part.second.weight.data) / 2
    return part.first


@repaired.register
def _(part: SplitConv) -> nn.Module:
    whole = part.left
    whole.weight = nn.Parameter(torch.cat([part.left.weight.data, part.right.weight.data]))
    whole.out_channels = len(whole.weight)
    return whole


@repaired.register
def _(part: StackedSum) -> nn.Module:
    return AddReLU()


@repaired.register
def _(part: FlatMean) -> nn.Module:
    return Mean()


@repaired.register
def _(part: nn.Sequential) -> nn.Module:
    """Two linear layers in a row are one linear layer: B(Ax + b) = (BA)x + Bb."""
    first, second = part
    assert isinstance(first, nn.Linear) and isinstance(second, nn.Linear)
    both = nn.Linear(first.in_features, second.out_features)
    both.weight.data = second.weight.data @ first.weight.data
    both.bias.data = second.weight.data @ first.bias.data
    return both
