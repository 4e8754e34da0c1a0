"""ResNet-50 with random weights, the standard network for speed, for which only the shape of the computation matters.

Source: He et al., Deep Residual Learning for Image Recognition (2015), the bottleneck of section 4.1; "v1.5" as in
NVIDIA's DeepLearningExamples and torchvision: the 3x3 convolution, not the first 1x1, carries the stride.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from course_lib.models.signature import Signature


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions with a shortcut; ``(N, before, H, W)`` to ``(N, 4*inner, H/stride, W/stride)``."""

    def __init__(self, before: int, inner: int, stride: int) -> None:
        super().__init__()
        after = 4 * inner
        self.conv1 = nn.Conv2d(before, inner, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, inner, 3, stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(inner)
        self.conv3 = nn.Conv2d(inner, after, 1, bias=False)
        self.norm3 = nn.BatchNorm2d(after)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or before != after:
            self.shortcut = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x: Tensor) -> Tensor:
        """``(N, before, H, W)`` to ``(N, 4*inner, H/stride, W/stride)``."""
        y = torch.relu(self.norm1(self.conv1(x)))
        y = torch.relu(self.norm2(self.conv2(y)))
        return torch.relu(self.norm3(self.conv3(y)) + self.shortcut(x))


def _stage(before: int, inner: int, *, blocks: int, stride: int) -> nn.Sequential:
    """``blocks`` bottlenecks, the first of which changes the channels to ``4*inner`` and takes the stride."""
    return nn.Sequential(Bottleneck(before, inner, stride), *(Bottleneck(4 * inner, inner, 1) for _ in range(blocks - 1)))


class ResNet50(nn.Module):
    """``image`` ``(N, 3, 224, 224)`` to ``logits`` ``(N, 1000)``."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.norm = nn.BatchNorm2d(64)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        self.stage1 = _stage(64, 64, blocks=3, stride=1)
        self.stage2 = _stage(256, 128, blocks=4, stride=2)
        self.stage3 = _stage(512, 256, blocks=6, stride=2)
        self.stage4 = _stage(1024, 512, blocks=3, stride=2)
        self.head = nn.Linear(2048, 1000)

    def forward(self, image: Tensor) -> Tensor:
        """``(N, 3, 224, 224)`` to ``(N, 1000)``."""
        x = self.pool(torch.relu(self.norm(self.stem(image))))
        x = self.stage4(self.stage3(self.stage2(self.stage1(x))))
        return self.head(x.mean(dim=(2, 3)))

    def signature(self) -> Signature:
        """Name and shape of the input and the output; the batch is dynamic."""
        return Signature(inputs={"image": ("batch", 3, 224, 224)}, outputs=("logits",))


def resnet50(seed: int = 0) -> ResNet50:
    """ResNet-50 v1.5 in eval mode with random weights, the same for the same seed; ``(N, 3, 224, 224)`` to ``(N, 1000)``.

    The logits have no meaning: use the network for speed and numerical agreement, never for accuracy. Blocks and batch norms are set
    so that FP16 stays close: on noise images its logits differ from FP32 by 0.2 % of the largest.
    """
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        model = ResNet50()
        for block in model.modules():
            if isinstance(block, Bottleneck):
                # Let each block add little to its shortcut (Goyal et al. 2017 start training at nothing). At 1, with random
                # weights, rounding errors grow from block to block until FP16 is 3 % off.
                nn.init.constant_(block.norm3.weight, 0.25)
        norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
        for norm in norms:
            norm.momentum = 1.0  # keep the statistics of the one batch that follows, forget the initial 0 and 1
        # 96 instead of 224 pixels: a fifth of the arithmetic, and still 3x3 positions of 8 images a channel at the end.
        model.train()(torch.randn(8, 3, 96, 96))
        for norm in norms:
            norm.momentum = 0.1
    return model.eval()
