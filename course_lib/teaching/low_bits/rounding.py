"""The course's decoder with rounded weights, inputs of products, or cache, and with factors moved between a norm and its product."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from course_lib.teaching.low_bits.loss import window_bits

if TYPE_CHECKING:
    from torch import Tensor, nn

    from course_lib.models.gpt import GPT

Change = Callable[[np.ndarray], np.ndarray]
Place = tuple[int, str]  # index of the block, name of the product
AFTER_NORM = {"qkv": "norm1", "up": "norm2"}  # products that read a norm, whose scale and bias can absorb a factor


def products(model: GPT) -> Iterator[tuple[Place, nn.Linear]]:
    """The four products of each block with their places, such as ``(0, "qkv")``. The tied head is not among them."""
    for index, block in enumerate(model.each_block()):
        for name in ("qkv", "out", "up", "down"):
            layer = getattr(block, name)
            yield (index, name), layer


def with_weights(model: GPT, change: Change) -> GPT:
    """A copy with ``change(weight)`` in place of each product's weight, float32 ``(out, in)``."""
    changed = copy.deepcopy(model)
    for _, layer in products(changed):
        layer.weight.data = _changed(layer.weight.detach(), change)
    return changed


def with_inputs(model: GPT, change: Change) -> GPT:
    """A copy whose products read ``change(input)``, float32 ``(n, s, in)``, in each call."""
    changed = copy.deepcopy(model)
    for _, layer in products(changed):
        layer.register_forward_pre_hook(lambda _, read: (_changed(read[0], change),))
    return changed


def with_cache(model: GPT, *, keys: Change | None = None, values: Change | None = None) -> GPT:
    """A copy whose attention reads changed keys or values, float32 ``(n, kv_heads, s, size)``, as if they came from a rounded cache."""
    changed = copy.deepcopy(model)
    for block in changed.each_block():

        def rounded(
            x: Tensor, rotation: tuple[Tensor, Tensor], heads_of: Callable[..., tuple[Tensor, Tensor, Tensor]] = block.heads_of
        ) -> tuple[Tensor, Tensor, Tensor]:
            query, key, value = heads_of(x, rotation)
            return query, _changed(key, keys) if keys else key, _changed(value, values) if values else value

        block.heads_of = rounded  # type: ignore[method-assign]
    return changed


def product_inputs(model: GPT, text: bytes) -> dict[Place, np.ndarray]:
    """What each product reads while the model reads `text`: float32 ``(tokens, in)`` by place. At least 512 bytes of text."""
    found: dict[Place, np.ndarray] = {}

    def keep(place: Place, read: Tensor) -> None:
        found[place] = read.reshape(-1, read.shape[-1]).numpy()

    hooks = [
        layer.register_forward_pre_hook(lambda _, read, place=place: keep(place, read[0])) for place, layer in products(model)
    ]
    try:
        window_bits(model, text, batch=len(text))
    finally:
        for hook in hooks:
            hook.remove()
    return found


def with_factors(model: GPT, factors: Mapping[Place, np.ndarray]) -> GPT:
    """A copy that computes the same: each norm's channels are divided by the factors, and its product's weights multiplied by them.

    Args:
        model: it is not changed.
        factors: positive, ``(in,)``, by place; only "qkv" and "up" read a norm.
    """
    import torch

    changed = copy.deepcopy(model)
    for (index, name), factor in factors.items():
        block, by = changed.each_block()[index], torch.from_numpy(np.asarray(factor, np.float32))
        norm, layer = getattr(block, AFTER_NORM[name]), getattr(block, name)
        norm.weight.data, norm.bias.data, layer.weight.data = norm.weight / by, norm.bias / by, layer.weight * by
    return changed


def planted(model: GPT, channel: int, factor: float) -> GPT:
    """A copy that computes the same, in which one channel after each norm is `factor` times as large, and its weights as much smaller."""
    ones = np.ones(model.embed.embedding_dim, np.float32)
    ones[channel] = 1 / factor
    return with_factors(model, {place: ones for place, _ in products(model) if place[1] in AFTER_NORM})


def _changed(tensor: Tensor, change: Change) -> Tensor:
    import torch

    return torch.from_numpy(np.ascontiguousarray(change(tensor.numpy()), np.float32))
