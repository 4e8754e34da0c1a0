"""The course's language model: a small GPT that reads bytes, and a network of GPT-2's shape for speed.

Sources: Radford et al., Language Models are Unsupervised Multitask Learners (2019), for the order of layers and the tied head;
Su et al., RoFormer (2021), for rotary embedding; Ainslie et al., GQA (2023), for grouped heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention

from course_lib.models import weights
from course_lib.models.signature import Signature

LONGEST = 512  # bytes of one sequence; the checkpoint was trained at this length
MASKED = -6e4  # added to the scores of slots that a token must not see; FP16 ends at -65,504
_BASE = 10_000.0  # of the rotary frequencies


class GPTBlock(nn.Module):
    """Self-attention with grouped heads and a two-layer perceptron, each after a layer norm and inside a residual connection.

    Each of the `kv_heads` KV heads serves ``heads / kv_heads`` query heads, so that the cache is that much
    smaller. Each head has ``size = width / heads`` features. Only the norms have a bias.
    """

    def __init__(self, width: int, heads: int, kv_heads: int, hidden: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, width // heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, (heads + 2 * kv_heads) * self.size, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
        """``(N, S, width)`` to the same shape. Each token sees itself and those before it. `rotation` is as in `heads_of`."""
        q, k, v = self.heads_of(x, rotation)
        return self.after_attention(x, scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True))

    def cached(
        self,
        x: Tensor,
        rotation: tuple[Tensor, Tensor],
        slots: Tensor,
        mask: Tensor,
        keys: Tensor,
        values: Tensor,
        in_place: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """As `forward` for S new tokens, whose keys and values enter the cache first.

        Args:
            x: ``(N, S, width)``.
            rotation: as in `heads_of`.
            slots: int64 ``(S,)``, where in the cache the new keys and values go.
            mask: ``(1, 1, S, length)``, added to the scores.
            keys, values: the cache, each ``(N, kv_heads, length, size)``.
            in_place: write into the given cache. Otherwise it is copied, as in a graph without side effects.

        Returns:
            The answer ``(N, S, width)``, the keys and the values.
        """
        q, k, v = self.heads_of(x, rotation)
        keys = keys.index_copy_(2, slots, k) if in_place else keys.index_copy(2, slots, k)
        values = values.index_copy_(2, slots, v) if in_place else values.index_copy(2, slots, v)
        attended = scaled_dot_product_attention(q, keys, values, attn_mask=mask, enable_gqa=True)
        return self.after_attention(x, attended), keys, values

    def heads_of(self, x: Tensor, rotation: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Rotated queries ``(N, heads, S, size)``, rotated keys and values ``(N, kv_heads, S, size)``.

        `rotation` has the cosines and the sines of the tokens' positions, each ``(S, size / 2)``.
        """
        heads = self.qkv(self.norm1(x)).unflatten(-1, (-1, self.size)).transpose(1, 2)
        turned, v = heads.split((self.heads + self.kv_heads, self.kv_heads), dim=1)
        first, second = turned.chunk(2, dim=-1)  # feature i turns with feature i + size/2, as ONNX's RotaryEmbedding does it
        cos, sin = rotation
        turned = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
        q, k = turned.split((self.heads, self.kv_heads), dim=1)
        return q, k, v

    def after_attention(self, x: Tensor, attended: Tensor) -> Tensor:
        """The block's answer ``(N, S, width)`` from its input and from what its heads found, ``(N, heads, S, size)``."""
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.down(gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    """``tokens`` int64 ``(N, S)`` to ``logits`` ``(N, S, vocabulary)``: at each token, the scores of the next one.

    `forward` computes every token again, and `step` reads the earlier ones from a cache. The matrix that embeds the tokens also
    computes the logits (a tied head). `longest` is the largest number of tokens of a sequence.
    """

    cos: Tensor  # of each position's angles, (longest, size / 2)
    sin: Tensor

    def __init__(
        self, depth: int, width: int, heads: int, kv_heads: int, hidden: int, vocabulary: int, longest: int = LONGEST
    ) -> None:
        super().__init__()
        self.longest = longest
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(GPTBlock(width, heads, kv_heads, hidden) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:  # GPT-2's initial weights; each layer that ends a residual branch starts smaller
                ends_branch = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(parameter, std=0.02 / (2 * depth) ** 0.5 if ends_branch else 0.02)
        size = width // heads
        angles = torch.arange(longest)[:, None] * _BASE ** (-torch.arange(0, size, 2) / size)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Int64 ``(N, S)`` to ``(N, S, vocabulary)``."""
        x = self.embed(tokens)
        rotation = self.cos[: tokens.shape[1]], self.sin[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x, rotation)
        return self.logits(x)

    def step(
        self, tokens: Tensor, position: Tensor, cache: Sequence[Tensor], *, in_place: bool = True, last_only: bool = False
    ) -> tuple[Tensor, ...]:
        """The logits of S new tokens that follow those in the cache: a prompt at position 0, or one token (decode).

        Args:
            tokens: int64 ``(N, S)``.
            position: int64 ``(1,)``, the number of tokens in the cache, the same for all N sequences.
            cache: as `empty_cache` makes it. What it holds from `position` on does not matter.
            in_place: write into the given cache. Otherwise it is copied.
            last_only: compute the logits of the last token only, ``(N, 1, vocabulary)``.

        Returns:
            The logits ``(N, S, vocabulary)``, and the tensors of the cache.
        """
        slots = position + torch.arange(tokens.shape[1], device=tokens.device)
        x = self.embed(tokens)
        rotation = self.cos[slots], self.sin[slots]
        unseen = torch.arange(cache[0].shape[2], device=tokens.device) > slots[:, None]
        mask = torch.zeros((), dtype=x.dtype, device=x.device).masked_fill(unseen, MASKED)[None, None]
        written: list[Tensor] = []
        for index, block in enumerate(self.each_block()):
            x, *pair = block.cached(x, rotation, slots, mask, cache[2 * index], cache[2 * index + 1], in_place)
            written += pair
        return self.logits(x[:, -1:] if last_only else x), *written

    def logits(self, x: Tensor) -> Tensor:
        """The scores of the next token, ``(N, S, vocabulary)``, from the last block's answer."""
        return self.norm(x) @ self.embed.weight.T

    def each_block(self) -> Sequence[GPTBlock]:
        """The blocks in order; equal in heads and sizes."""
        return cast("Sequence[GPTBlock]", self.blocks)

    def empty_cache(self, length: int = LONGEST, batch: int = 1) -> list[Tensor]:
        """Zeros for `length` tokens of each sequence: keys and values of each block in turn, ``(batch, kv_heads, length, size)``."""
        block = self.each_block()[0]
        shape = (batch, block.kv_heads, length, block.size)
        return [
            torch.zeros(shape, dtype=self.embed.weight.dtype, device=self.embed.weight.device)
            for _ in range(2 * len(self.blocks))
        ]

    def signature(self) -> Signature:
        """Name and shape of the input and the output of `forward`; the batch and the sequence length are dynamic."""
        return Signature(
            inputs={"tokens": ("batch", "sequence")},
            outputs=("logits",),
            sizes={"sequence": 32},
            integers={"tokens": self.embed.num_embeddings},
        )


def decoder(*, pretrained: bool = True, longest: int = LONGEST) -> GPT:
    """The course's byte-level GPT in eval mode, ``tokens`` ``(N, S)`` to ``logits`` ``(N, S, 256)``; S is at most `longest`.

    Four blocks of width 192 with six query heads that share two KV heads, 1,330,560 parameters. A token is a
    byte of UTF-8. It needs 1.86 bits per byte on the held-out part of the course's own text.

    Args:
        pretrained: load the shipped weights. Otherwise torch's global random generator initializes them.
        longest: positions that have rotary angles. Beyond 512, attention to all tokens is worse than attention to the last ones.
    """
    model = GPT(depth=4, width=192, heads=6, kv_heads=2, hidden=576, vocabulary=256, longest=longest)
    if pretrained:
        weights.load(model, "gpt")
    return model.eval()
