"""Lab 02's network, rewritten: each part that prevents fusion is replaced by one that computes the same function."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import reduce
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from course_lib.labs.framework import submission
from course_lib.labs.lab02_fusion.given import (
    AddReLU,
    Ensemble,
    FlatMean,
    PrimitiveNorm,
    SlowClassifier,
    SplitConv,
    StackedSum,
    Standardize,
    Suspect,
    WhereReLU,
    drawn,
    slow_classifier,
)


def rewritten(learner: str = "", *, still: Collection[str] = ()) -> SlowClassifier:
    """A learner's network with every suspect repaired, in eval mode; the suspects in `still` stay as given."""
    return repaired_in(slow_classifier(learner), still)


def alone(name: str, suspect: Suspect) -> SlowClassifier:
    """The rewritten network with one suspect in it. Its weights are the same for all learners, so that each is built once."""
    others = {other: there for other, there in drawn("").items() if other not in ("branches", "concat")}
    return repaired_in(SlowClassifier({**others, name: suspect}), still=[name])


def repaired_in(network: SlowClassifier, still: Collection[str] = ()) -> SlowClassifier:
    """The network itself, with the suspects repaired that are not in `still`."""
    for name, suspect in network.suspects.items():
        for path in () if name in still else suspect.paths:
            network.set_submodule(path, repaired(network.get_submodule(path)))
    return network.eval().requires_grad_(False)


def write(folder: Path, learner: str = "reference") -> None:
    """A learner's rewritten network, and what each suspect costs."""
    from course_lib.models import export_onnx

    export_onnx(rewritten(learner), folder / "model.onnx", opset=17)
    submission.write(folder / "causes.json", learner, costs=costs(learner))


def costs(learner: str) -> dict[str, int]:
    """The kernels that each suspect of a learner's network adds with TensorRT for RTX 1.7.1."""
    return {name: cost(name, suspect) for name, suspect in drawn(learner).items()}


def cost(name: str, suspect: Suspect) -> int:
    """Counted for all suspects that can be drawn. ``expected.json`` has digests of these numbers for learners."""
    sums = {"block1.join": 3, "block2.join": 3, "block3.join": 1}
    return {
        "activation": len(suspect.paths),
        "branches": suspect.pieces - 1,
        "concat": suspect.pieces,
        "head": suspect.pieces - 1,
        "layout": len(suspect.paths),
        "residual": sum(sums[path] for path in suspect.paths if name == "residual"),
    }.get(name, 0)


class FloatStandardize(Standardize):
    """The same in single precision, which is what TensorRT computes for a double anyway."""

    def forward(self, image: Tensor) -> Tensor:
        """``(N, 1, 32, 32)`` to ``(N, 1, 32, 32)``."""
        mean = image.mean(dim=(1, 2, 3), keepdim=True)
        variance = ((image - mean) ** 2).mean(dim=(1, 2, 3), keepdim=True)
        return (image - mean) / torch.sqrt(variance + self.EPS) * self.DEVIATION + self.MEAN


class Mean(nn.Module):
    """``(N, C, H, W)`` to ``(N, C)``."""

    def forward(self, x: Tensor) -> Tensor:
        """``(N, C, H, W)`` to ``(N, C)``."""
        return x.mean(dim=(2, 3))


def repaired(part: nn.Module) -> nn.Module:
    """A part that computes the same function in fewer kernels."""
    match part:
        case Standardize():
            return FloatStandardize()
        case PrimitiveNorm():  # statistics by channel, whatever the layout; the exporter folds them into the convolution before
            norm = nn.BatchNorm2d(part.mean.numel(), eps=part.eps)
            norm.weight.data, norm.bias.data = part.gamma.flatten(), part.beta.flatten()
            norm.running_mean, norm.running_var = part.mean.flatten(), part.variance.flatten()
            return norm
        case WhereReLU():
            return nn.ReLU()
        case StackedSum():
            return AddReLU()
        case FlatMean():
            return Mean()
        case Ensemble():  # convolution is linear in its weights
            return _joined(part.runs, lambda weights: torch.stack(weights).mean(0))
        case SplitConv():
            return _joined(part.pieces, torch.cat)
        case nn.Sequential():  # linear layers in a row are one: B(Ax + b) = (BA)x + Bb
            first, *others = cast("list[nn.Linear]", list(part))
            whole = nn.Linear(first.in_features, others[-1].out_features)
            product = reduce(Tensor.matmul, [layer.weight.data for layer in reversed(others)])
            whole.weight.data, whole.bias.data = product @ first.weight.data, product @ first.bias.data
            return whole
    raise TypeError(f"nothing is known against {type(part).__name__}")


def _joined(convs: nn.ModuleList, join: Callable[[list[Tensor]], Tensor]) -> nn.Conv2d:
    """The first convolution with the joined weights of all of them."""
    whole, *_ = all_of_them = cast("list[nn.Conv2d]", list(convs))
    whole.weight = nn.Parameter(join([conv.weight.data for conv in all_of_them]))
    whole.out_channels = len(whole.weight)
    return whole
