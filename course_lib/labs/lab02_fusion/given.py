"""The network of lab 02: a digit classifier that is correct and slow. You may read it, take it apart and rewrite it.

Several people worked on it, each with a reason, and nobody reviewed the whole network. It consists of parts that can be replaced:
``network.block1.act = nn.ReLU()``. Nine kinds of parts are suspects, and some of them are innocent. Where they are is drawn for each
learner.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from course_lib.labs.framework import submission
from course_lib.models import Signature, classifier
from course_lib.models.residual_cnn import ResidualBlock

_CONVS = tuple(f"block{block}.conv{place}" for block in (1, 2, 3) for place in (1, 2))


@dataclass(frozen=True)
class Suspect:
    """Parts of the network that do the same thing.

    Attributes:
        paths: where they are, such as ``("block1.act",)``.
        pieces: how many convolutions or linear layers are in place of one.
    """

    paths: tuple[str, ...]
    pieces: int = 1


def drawn(learner: str) -> dict[str, Suspect]:
    """The suspects of a learner's network."""
    rng = submission.rng(learner, "lab02")

    def some(paths: tuple[str, ...], least: int) -> tuple[str, ...]:
        return tuple(np.sort(rng.choice(paths, rng.integers(least, len(paths) + 1), replace=False)).tolist())

    branches, concat = rng.choice(_CONVS, 2, replace=False).tolist()
    return {
        "activation": Suspect(some(("act", "block1.act", "block2.act", "block3.act"), 2)),
        "branches": Suspect((branches,), int(rng.integers(2, 4))),
        "casts": Suspect(("standardize",)),
        "concat": Suspect((concat,), int(rng.integers(2, 5))),
        "head": Suspect(("head",), int(rng.integers(2, 5))),
        "layout": Suspect(some(("block1.norm1", "block2.norm1", "block3.norm1"), 1)),
        "primitives": Suspect(("norm",)),
        "reshape": Suspect(("pool",)),
        "residual": Suspect(some(("block1.join", "block2.join", "block3.join"), 2)),
    }


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


class Ensemble(nn.Module):
    """The mean of several convolutions: the weights of several training runs, because an ensemble is better than one."""

    def __init__(self, *runs: nn.Conv2d) -> None:
        super().__init__()
        self.runs = nn.ModuleList(runs)

    def forward(self, x: Tensor) -> Tensor:
        """``(N, before, H, W)`` to ``(N, after, H/stride, W/stride)``."""
        total = self.runs[0](x)
        for run in self.runs[1:]:
            total = total + run(x)
        return total / len(self.runs)


class SplitConv(nn.Module):
    """One convolution in pieces, each with a part of the output channels, as in code written for several GPUs."""

    def __init__(self, *pieces: nn.Conv2d) -> None:
        super().__init__()
        self.pieces = nn.ModuleList(pieces)

    def forward(self, x: Tensor) -> Tensor:
        """``(N, before, H, W)`` to ``(N, after, H/stride, W/stride)``."""
        return torch.cat([piece(x) for piece in self.pieces], dim=1)


class StackedSum(nn.Module):
    """The end of a residual block, for any number of branches. Each ``(N, C, H, W)``."""

    def forward(self, *branches: Tensor) -> Tensor:
        """Any number of ``(N, C, H, W)`` to one ``(N, C, H, W)``."""
        return torch.relu(torch.stack(branches).sum(dim=0))


class AddReLU(nn.Module):
    """The end of a residual block with two branches, as in the paper. Each ``(N, C, H, W)``."""

    def forward(self, branch: Tensor, shortcut: Tensor) -> Tensor:
        """Two ``(N, C, H, W)`` to one ``(N, C, H, W)``."""
        return torch.relu(branch + shortcut)


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
        self.act: nn.Module = nn.ReLU()
        self.conv2: nn.Module = trained.conv2
        self.norm2: nn.Module = trained.norm2
        self.shortcut: nn.Module = trained.shortcut
        self.join: nn.Module = AddReLU()

    def forward(self, x: Tensor) -> Tensor:
        """``(N, before, H, W)`` to ``(N, after, H/stride, W/stride)``."""
        y = self.act(self.norm1(self.conv1(x)))
        return self.join(self.norm2(self.conv2(y)), self.shortcut(x))


class SlowClassifier(nn.Module):
    """``image`` ``(N, 1, 32, 32)`` to ``logits`` ``(N, 10)``.

    Attributes:
        suspects: where the suspects are, by name.
    """

    def __init__(self, suspects: Mapping[str, Suspect], learner: str = "") -> None:
        super().__init__()
        rng = submission.rng(learner, f"lab02 {dict(suspects)}")  # with other suspects it has other weights: another function
        trained = classifier("small")
        self.standardize: nn.Module = Standardize()
        self.stem: nn.Module = trained.stem
        self.norm: nn.Module = PrimitiveNorm(trained.norm)
        self.act: nn.Module = nn.ReLU()
        self.block1, self.block2, self.block3 = (Block(b) for b in (trained.block1, trained.block2, trained.block3))
        self.pool: nn.Module = FlatMean(64, 8 * 8)
        cooling = (_center_and_cool() for _ in range(suspects["head"].pieces - 1))
        self.head: nn.Module = nn.Sequential(trained.head, *cooling)
        self.suspects = dict(suspects)
        for suspect, made in (("activation", WhereReLU), ("residual", StackedSum)):
            for path in suspects[suspect].paths:
                self.set_submodule(path, made())
        for path in suspects["layout"].paths:
            self.set_submodule(path, ChannelsLastNorm(cast(nn.BatchNorm2d, self.get_submodule(path))))
        for suspect, rebuilt in (("branches", _ensemble), ("concat", _split)):
            for path in suspects[suspect].paths if suspect in suspects else ():
                conv = cast(nn.Conv2d, self.get_submodule(path))
                self.set_submodule(path, rebuilt(conv, suspects[suspect].pieces, rng))

    def forward(self, image: Tensor) -> Tensor:
        """``(N, 1, 32, 32)`` to ``(N, 10)``."""
        x = self.act(self.norm(self.stem(self.standardize(image))))
        x = self.block3(self.block2(self.block1(x)))
        return self.head(self.pool(x))

    def signature(self) -> Signature:
        """Name and shape of the input and the output; the batch is dynamic."""
        return Signature(inputs={"image": ("batch", 1, 32, 32)}, outputs=("logits",))


def slow_classifier(learner: str = "") -> SlowClassifier:
    """A learner's network as it was given, trained and in eval mode."""
    return SlowClassifier(drawn(learner), learner).eval().requires_grad_(False)


def _ensemble(first: nn.Conv2d, pieces: int, rng: np.random.Generator) -> nn.Module:
    """Slightly different weights, as from other training runs. They are not trained but noise, the same for a learner on every machine."""
    runs = [first]
    for _ in range(pieces - 1):
        another = copy.deepcopy(first)
        noise = torch.from_numpy(rng.standard_normal(tuple(first.weight.shape), np.float32))
        another.weight.data += 0.2 * first.weight.data.std() * noise
        runs.append(another)
    return Ensemble(*runs)


def _split(whole: nn.Conv2d, pieces: int, rng: np.random.Generator) -> nn.Module:
    """A convolution without bias cut along its output channels."""

    def part(weight: Tensor) -> nn.Conv2d:
        made = copy.deepcopy(whole)
        made.weight, made.out_channels = nn.Parameter(weight.clone()), len(weight)
        return made

    return SplitConv(*map(part, whole.weight.data.chunk(pieces)))


def _center_and_cool() -> nn.Linear:
    """A matrix that subtracts the mean of the logits and divides by temperature 2: same answers, lower confidence."""
    layer = nn.Linear(10, 10, bias=False)
    layer.weight.data = (torch.eye(10) - 0.1) / 2
    return layer
