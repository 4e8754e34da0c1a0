"""A U-Net with random weights: large images, wide skip connections, and more memory traffic than any classifier has.

Source: Ronneberger, Fischer and Brox, U-Net: Convolutional Networks for Biomedical Image Segmentation (2015), figure 1; padded
convolutions and batch norms as in most of its successors, so that the answer has the size of the image.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from course_lib.models.signature import Signature

CLASSES = 2


def _two_convolutions(before: int, after: int) -> nn.Sequential:
    """``(N, before, H, W)`` to ``(N, after, H, W)``: twice a 3x3 convolution, a batch norm and a ReLU."""
    layers: list[nn.Module] = []
    for channels in (before, after):
        layers += [nn.Conv2d(channels, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """``image`` ``(N, 3, side, side)`` to ``mask`` ``(N, 2, side, side)``, logits; `side` is a multiple of ``2**levels``."""

    def __init__(self, channels: int, levels: int, side: int) -> None:
        super().__init__()
        self.side = side
        widths = [channels << level for level in range(levels + 1)]  # 64, 128, 256, 512, 1024
        pairs = list(pairwise(widths))
        self.first = _two_convolutions(3, channels)
        self.down = nn.ModuleList(_two_convolutions(fine, coarse) for fine, coarse in pairs)
        self.pool = nn.MaxPool2d(2)
        self.enlarge = nn.ModuleList(nn.ConvTranspose2d(coarse, fine, 2, stride=2) for fine, coarse in reversed(pairs))
        self.up = nn.ModuleList(_two_convolutions(coarse, fine) for fine, coarse in reversed(pairs))
        self.head = nn.Conv2d(channels, CLASSES, 1)

    def forward(self, image: Tensor) -> Tensor:
        """``(N, 3, side, side)`` to ``(N, 2, side, side)``."""
        x = self.first(image)
        skipped = []
        for down in self.down:
            skipped.append(x)
            x = down(self.pool(x))
        for enlarge, up in zip(self.enlarge, self.up, strict=True):
            x = up(torch.cat([skipped.pop(), enlarge(x)], dim=1))
        return self.head(x)

    def signature(self) -> Signature:
        """Name and shape of the input and the output; the batch is dynamic."""
        return Signature(inputs={"image": ("batch", 3, self.side, self.side)}, outputs=("mask",))


def unet(channels: int = 64, levels: int = 4, side: int = 256, *, seed: int = 0) -> UNet:
    """A U-Net in eval mode with random weights, the same for the same seed; 31 million parameters, four levels below the first.

    ``image`` ``(N, 3, 256, 256)`` to ``mask`` ``(N, 2, 256, 256)``, without meaning: use it for speed and numerical
    agreement. Weights are drawn so that activations keep their size from layer to layer (He et al., Delving Deep into
    Rectifiers, 2015), and FP16 stays close.
    """
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        model = UNet(channels, levels, side)
        for module in model.modules():
            if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
    return model.eval()
