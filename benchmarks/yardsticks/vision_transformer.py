"""A vision transformer of ViT-B/16's shape with random weights: attention over 197 tokens, a length that no tile size divides.

Source: Dosovitskiy et al., An Image is Worth 16x16 Words: Transformers for Image Recognition at Scale (2020), table 1, "Base".
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from course_lib.models.signature import Signature
from course_lib.models.transformer import EncoderBlock

PATCH = 16  # pixels on a side
CLASSES = 1000


class VisionTransformer(nn.Module):
    """``image`` ``(N, 3, side, side)`` to ``logits`` ``(N, 1000)``; `side` is a multiple of 16."""

    def __init__(self, depth: int, width: int, heads: int, side: int) -> None:
        super().__init__()
        self.side = side
        self.patches = nn.Conv2d(3, width, PATCH, stride=PATCH)
        self.token = nn.Parameter(0.02 * torch.randn(1, 1, width))
        self.positions = nn.Parameter(0.02 * torch.randn(1 + (side // PATCH) ** 2, width))
        self.blocks = nn.ModuleList(EncoderBlock(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, image: Tensor) -> Tensor:
        """``(N, 3, side, side)`` to ``(N, 1000)``."""
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(image.shape[0], -1, -1), x], dim=1) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x[:, 0]))

    def signature(self) -> Signature:
        """Name and shape of the input and the output; the batch is dynamic."""
        return Signature(inputs={"image": ("batch", 3, self.side, self.side)}, outputs=("logits",))


def vit_b16(depth: int = 12, width: int = 768, heads: int = 12, side: int = 224, *, seed: int = 0) -> VisionTransformer:
    """A network of ViT-B/16's shape in eval mode, random weights, the same for the same seed; 86 567 656 parameters.

    ``image`` ``(N, 3, 224, 224)`` to ``logits`` ``(N, 1000)``, without meaning: use it for speed and numerical agreement.
    """
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        return VisionTransformer(depth, width, heads, side).eval()
