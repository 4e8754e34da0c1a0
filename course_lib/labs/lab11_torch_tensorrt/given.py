"""The given module: it reads a digit row by row. Compiled, it falls into five blocks, and in FP16 its answers are wrong."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

BATCH, ROWS, WIDTH, HEADS, CLASSES = 8, 32, 192, 6, 10
RANGE = (1, 32)  # of batch sizes
TRAFFIC = {1: 210, 2: 96, 4: 388, 8: 1730, 12: 240, 16: 905, 24: 61}  # requests of a day, by the size of their batch


class Reader(nn.Module):
    """Rows ``(8, 32, 32)`` to logits ``(8, 10)``. The methods are the places that a rewriting changes."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(32, WIDTH)
        self.gate = nn.Linear(WIDTH, WIDTH)
        self.norm1 = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.norm2 = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, rows: Tensor) -> Tensor:
        """The logits."""
        x = torch.relu(self.embed(rows))
        x = x * self.faded(0.9 + 0.2 * torch.sigmoid(self.gate(x)))
        x = x + self.out(self.attended(self.qkv(self.norm1(x))))
        x = x - self.middle(x)
        x = x + self.down(F.gelu(self.up(self.norm2(x))))
        logits: Tensor = self.head(self.leveled(x).mean(dim=1))
        return logits

    def faded(self, gates: Tensor) -> Tensor:
        """The product of all gates up to each row."""
        return torch.cumprod(gates, dim=1)

    def attended(self, qkv: Tensor) -> Tensor:
        """Self-attention of all rows."""
        q, k, v = qkv.reshape(BATCH, ROWS, 3, HEADS, -1).permute(2, 0, 3, 1, 4).unbind(0)
        attended = F.scaled_dot_product_attention(q, k, v)
        return attended.transpose(1, 2).reshape(BATCH, ROWS, WIDTH)

    def middle(self, x: Tensor) -> Tensor:
        """The median of all rows. It is the 16th of 32 sorted rows."""
        return x.median(dim=1, keepdim=True).values

    def leveled(self, x: Tensor) -> Tensor:
        """The same energy for each image."""
        energy = (x * x).sum(dim=(1, 2), keepdim=True)
        return 64 * x / energy.sqrt()


def weights(rng: np.random.Generator) -> dict[str, Tensor]:
    """Random weights with the keys of `Reader`'s state_dict."""
    drawn = {}
    for key, value in Reader().state_dict().items():
        numbers = rng.standard_normal(value.shape)
        if value.ndim == 2:
            numbers *= 3.0 / np.sqrt(value.shape[1])
        else:
            numbers = 0.2 * numbers + (1.0 if key.startswith("norm") and key.endswith("weight") else 0.0)
        drawn[key] = torch.from_numpy(numbers.astype(np.float32))
    return drawn


def inputs(rng: np.random.Generator, batch: int = BATCH) -> Tensor:
    """Random rows."""
    return torch.from_numpy(rng.random((batch, ROWS, 32), dtype=np.float32))


def reader(seed: int = 0) -> Reader:
    """The given module with weights from `seed`."""
    made = Reader()
    made.load_state_dict(weights(np.random.default_rng(seed)))
    return made.eval()


def logits(drawn: dict[str, Tensor], rows: Tensor) -> Tensor:
    """The given module's answers in FP64, for any batch."""
    made = Reader()
    made.load_state_dict(drawn)
    made = made.double().eval()
    padded = torch.cat([rows, rows.new_zeros(-len(rows) % BATCH, *rows.shape[1:])]).double()
    with torch.no_grad():
        return torch.cat([made(part) for part in padded.split(BATCH)])[: len(rows)]
