"""A transformer encoder of BERT-base's shape with random weights: the yardstick for the speed of attention and matrix products.

Source: Devlin, Chang, Lee and Toutanova, BERT: Pre-training of Deep Bidirectional Transformers (2018), section 3: 12 layers,
width 768, 12 heads, perceptrons four times as wide. The layer norms are before each sub-layer, as in the course's own encoder:
the same kernels in another order.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from course_lib.models.signature import Signature
from course_lib.models.transformer import EncoderBlock


class BertEncoder(nn.Module):
    """``tokens`` ``(N, sequence, width)``, embedded already, to ``states`` of the same shape. No token is masked."""

    def __init__(self, depth: int, width: int, heads: int, sequence: int) -> None:
        super().__init__()
        self.positions = nn.Parameter(0.02 * torch.randn(sequence, width))
        self.embedded = nn.LayerNorm(width)
        self.blocks = nn.ModuleList(EncoderBlock(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: Tensor) -> Tensor:
        """``(N, sequence, width)`` to ``(N, sequence, width)``."""
        x = self.embedded(tokens + self.positions)
        for block in self.blocks:
            x = block(x)
        return self.norm(x)

    def signature(self) -> Signature:
        """Name and shape of the input and the output; the batch is dynamic."""
        return Signature(inputs={"tokens": ("batch", *self.positions.shape)}, outputs=("states",))


def bert_base(depth: int = 12, width: int = 768, heads: int = 12, sequence: int = 128, *, seed: int = 0) -> BertEncoder:
    """An encoder of BERT-base's shape in eval mode, random weights, the same for the same seed; 85 million parameters.

    ``tokens`` ``(N, 128, 768)`` to ``states`` ``(N, 128, 768)``. The look-up of embeddings is left out, because it is only a copy. The
    states have no meaning: use the network for speed and numerical agreement.
    """
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        return BertEncoder(depth, width, heads, sequence).eval()
