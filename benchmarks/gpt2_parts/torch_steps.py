"""The decoder's step and prompt in PyTorch, with a static cache that is written in place."""

from __future__ import annotations

import copy
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.gpt2_parts.cases import Case, Shape
from course_lib.models.gpt import GPT, MASKED


def gpt2_shape(depth: int = 12, width: int = 768, heads: int = 12, vocabulary: int = 50_257, *, seed: int = 0) -> GPT:
    """A decoder of GPT-2's shape in eval mode, random weights, the same for the same seed; 124 million parameters.

    12 layers of width 768 with 12 heads, GPT-2's vocabulary of 50 257 tokens and its 1024 positions. Positions are rotary, where
    GPT-2 learns them, and linear layers do not have a bias. The logits have no meaning: use the network for speed and numerical
    agreement.
    """
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        return GPT(depth, width, heads, heads, 4 * width, vocabulary, longest=1024).eval()


class Cached(nn.Module):
    """Tokens int64 ``(batch, new)`` to the logits of the last one, ``(batch, vocabulary)``.

    Attributes:
        keys, values: the cache of each block.
    """

    def __init__(self, case: Case, dtype: torch.dtype, device: str) -> None:
        super().__init__()
        self.model = copy.deepcopy(network(case.shape)).to(device, dtype)
        self.keys, self.values = (
            [torch.from_numpy(case.cache(block, kind)).to(device, dtype) for block in range(case.shape.depth)]
            for kind in ("key", "value")
        )
        self.position = torch.tensor([case.position], device=device)
        self.slots = torch.arange(case.length, device=device)


class Step(Cached):
    """One new token of each sequence. The position is on the device, so a CUDA graph can be replayed for the next token."""

    def forward(self, tokens: Tensor) -> Tensor:
        model = self.model
        x = model.embed(tokens)
        rotation = model.cos[self.position], model.sin[self.position]
        mask = torch.zeros((), dtype=x.dtype, device=x.device).masked_fill(self.slots > self.position, MASKED)[None, None, None]
        for block, keys, values in zip(model.each_block(), self.keys, self.values, strict=True):
            q, k, v = block.heads_of(x, rotation)
            keys.index_copy_(2, self.position, k)
            values.index_copy_(2, self.position, v)
            x = block.after_attention(x, scaled_dot_product_attention(q, keys, values, attn_mask=mask))
        return model.logits(x)[:, -1]


class Prompt(Cached):
    """A prompt that fills an empty cache. Its tokens attend to one another only, so a causal kernel without a mask serves."""

    def forward(self, tokens: Tensor) -> Tensor:
        model, new = self.model, tokens.shape[1]
        x = model.embed(tokens)
        rotation = model.cos[:new], model.sin[:new]
        for block, keys, values in zip(model.each_block(), self.keys, self.values, strict=True):
            q, k, v = block.heads_of(x, rotation)
            keys[:, :, :new], values[:, :, :new] = k, v
            x = block.after_attention(x, scaled_dot_product_attention(q, k, v, is_causal=True))
        return model.logits(x[:, -1:])[:, -1]


def made(case: Case, dtype: str, device: str) -> Cached:
    """The module of a case, ``dtype`` "fp32" or "fp16"."""
    kind = Step if case.is_step else Prompt
    return kind(case, torch.float16 if dtype == "fp16" else torch.float32, device).eval()


@cache
def network(shape: Shape) -> GPT:
    """The network in FP32 on the CPU, once in each process; do not change it."""
    return gpt2_shape(shape.depth, shape.width, shape.heads, shape.vocabulary)
