"""Submissions for lab 02: another right network, rewrites that are wrong, and causes that were not measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import onnx
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course_lib.labs.lab02_fusion.checks import OPSET
from course_lib.labs.lab02_fusion.given import SlowClassifier, slow_classifier
from course_lib.labs.lab02_fusion.reference import costs, rewritten
from course_lib.models import export_onnx

LEARNER = "ada"
Made = nn.Module | onnx.ModelProto


class ByHand(nn.Module):
    """Another right answer: a flat network of convolutions with the norms folded by hand, and layer norm for the statistics."""

    def __init__(self) -> None:
        super().__init__()
        parts = rewritten(LEARNER)
        self.stem = self.fold(parts.stem, parts.norm)
        self.convs = nn.ModuleList()
        for block in (parts.block1, parts.block2, parts.block3):
            self.convs += [self.fold(block.conv1, block.norm1), self.fold(block.conv2, block.norm2)]
            self.convs.append(self.fold(*block.shortcut) if isinstance(block.shortcut, nn.Sequential) else nn.Identity())
        self.head = parts.head

    @staticmethod
    def fold(conv: nn.Conv2d, norm: nn.BatchNorm2d) -> nn.Conv2d:
        scale = norm.weight / torch.sqrt(norm.running_var + norm.eps)
        folded = nn.Conv2d(conv.in_channels, conv.out_channels, conv.kernel_size, conv.stride, conv.padding)
        folded.weight.data = conv.weight * scale[:, None, None, None]
        folded.bias.data = norm.bias - scale * norm.running_mean
        return folded

    def forward(self, image: Tensor) -> Tensor:
        x = F.relu(self.stem(F.layer_norm(image, (1, 32, 32)) * 0.32 + 0.31))
        for i in (0, 3, 6):
            x = F.relu(self.convs[i + 1](F.relu(self.convs[i](x))) + self.convs[i + 2](x))
        return self.head(x.mean(dim=(2, 3)))

    def signature(self):
        return slow_classifier().signature()


ANOTHER: dict[str, Callable[[], Made]] = {
    "by hand": ByHand,
    "one kernel more": lambda: rewritten(LEARNER, still=["layout"]),
}


def changed(change: Callable[[SlowClassifier], None]) -> nn.Module:
    network = rewritten(LEARNER)
    change(network)
    return network


def without_eps(network: SlowClassifier) -> None:
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eps = 0.0


def statistics_over_the_batch(network: SlowClassifier) -> None:
    class OverTheBatch(nn.Module):
        def forward(self, image: Tensor) -> Tensor:
            return (image - image.mean()) / image.std() * 0.32 + 0.31

    network.standardize = OverTheBatch()


def exported(**options: Any) -> onnx.ModelProto:
    return export_onnx(rewritten(LEARNER), opset=OPSET, **options)


@dataclass(frozen=True)
class Mistake:
    """A wrong submission: how it is made, its tiers (full where none is named), and words of the task's message or hint.

    Attributes:
        costs: for `causes.json`, in place of the measured ones.
    """

    tiers: dict[str, str]
    words: str
    model: Callable[[], Made] = lambda: rewritten(LEARNER)
    costs: dict[str, int] = field(default_factory=lambda: costs(LEARNER))


NETWORK = {"equality": "none", "kernels": "none"}
GUESS = dict.fromkeys(costs(LEARNER), 0) | {"activation": 4, "branches": 1, "concat": 2, "head": 1, "layout": 1, "residual": 7}
MISTAKES: dict[str, Mistake] = {
    "nothing rewritten": Mistake(NETWORK, "kernels of 28 in the given network is 28", lambda: slow_classifier(LEARNER)),
    "one suspect left": Mistake({"kernels": "partial"}, "what kept it out", lambda: rewritten(LEARNER, still=["concat"])),
    "an eps forgotten": Mistake({"equality": "partial"}, "eps of a norm", lambda: changed(without_eps)),
    "statistics over the batch": Mistake(NETWORK, "one part at a time", lambda: changed(statistics_over_the_batch)),
    "a fixed batch": Mistake(NETWORK, "batch has to stay dynamic", lambda: exported(dynamic_batch=False, batch=8)),
    "half precision": Mistake({"kernels": "none", "equality": "none"}, "smaller type", lambda: exported(dtype="fp16")),
    "one cost wrong": Mistake({"causes": "partial"}, "8, all points need", costs=costs(LEARNER) | {"residual": 7}),
    "a friend's costs": Mistake({"causes": "none"}, "half of the points need at least 8", costs=GUESS),
}
