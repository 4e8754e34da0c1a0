"""The mistakes that learners make in a cached attention: each is computed, so that wrong logits can be recognized and named."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from course_lib.labs.lab13_generation.judge import truth
from course_lib.labs.lab13_generation.network import BLOCKS, HEADS, KV_HEADS, LENGTH, SIZE

if TYPE_CHECKING:
    from torch import Tensor

    from course_lib.models.gpt import GPTBlock

_SAME = (
    0.01  # largest relative difference to a mistake's logits; rounding gives 1e-5, and two mistakes differ by more than 0.02
)


@dataclass(frozen=True)
class Fault:
    """What is wrong, in a sentence after "The logits are those of a decoder ...", and a hint."""

    message: str
    hint: str


FAULTS = {
    "mask_one_more": Fault(
        "whose mask is off by one: each token also sees the slot after its own",
        "A token at position p sees the slots 0 to p. Compare slots and positions for p = 0: how many slots must be left?",
    ),
    "mask_one_less": Fault(
        "whose mask is off by one: no token sees its own slot",
        "Its own key and value are in the cache before the attention reads it. Which comparison includes equality?",
    ),
    "no_mask": Fault(
        "without a mask: every token attends to all slots, also to those that hold nothing or another request's entries",
        "The mask has to hide every slot after the token's own position, in prefill and in decode.",
    ),
    "mask_by_length_only": Fault(
        "whose mask hides the slots after the last new token, but is not causal: a prompt's tokens see later ones of the prompt",
        "The mask needs one row for each new token, (1, 1, new, LENGTH), because each has another position.",
    ),
    "cache_not_read": Fault(
        "that does not read its cache: each call attends to its new keys and values only",
        "Which tensor has all keys after the new ones were written: the input past_key, the new keys, or present_key?",
    ),
    "past_read": Fault(
        "that attends to the cache as it was before the call: no token sees the call's own keys and values",
        "Which tensor has all keys after the new ones were written: the input past_key, the new keys, or present_key?",
    ),
    "rotary_from_zero": Fault(
        "whose rotary positions begin at 0 in each call",
        "The first new token of a call has the position `position`, not 0. What do you have to add to `steps`?",
    ),
    "no_rotation": Fault(
        "without rotary positions: queries and keys are not rotated",
        "Queries and keys are rotated by their positions before the scores, and values are not.",
    ),
    "keys_not_rotated": Fault(
        "that rotates the queries only",
        "A score depends on the distance of two tokens only if both sides are rotated. Rotate the keys before they enter the cache.",
    ),
    "rotary_pairs": Fault(
        "that rotates neighboring features as pairs",
        "This checkpoint rotates feature i with feature i + 16, which is the default of RotaryEmbedding (interleaved = 0).",
    ),
    "written_at_zero": Fault(
        "that writes each call's keys and values at slot 0, over those of the first tokens",
        "The new entries belong at the slots `position`, `position` + 1, ... Which input of the writing operator says where?",
    ),
    "written_one_late": Fault(
        "that writes the new keys and values one slot too late",
        "`position` is the number of tokens in the cache, so it is also the index of the first free slot.",
    ),
    "heads_interleaved": Fault(
        "whose query heads share the wrong heads of keys and values: query head h reads head h % 2",
        "Six query heads share two heads of keys and values in groups: 0, 1 and 2 read head 0, and 3, 4 and 5 read head 1.",
    ),
    "not_scaled": Fault(
        "whose scores are not divided by the root of the head's size",
        "Scores are multiplied by 1 / sqrt(32). The operator Attention does it, a MatMul does not.",
    ),
}


def recognized(tokens: np.ndarray, sizes: list[int], found: np.ndarray) -> Fault | None:
    """The mistake that gives these logits after the calls, if exactly one is known."""
    distances = {name: truth.error(faulty_logits(name, tokens, sizes), found) for name in FAULTS}
    name = min(distances, key=lambda name: distances[name])
    return FAULTS[name] if distances[name] < _SAME else None


def faulty_logits(fault: str, tokens: np.ndarray, sizes: list[int]) -> np.ndarray:
    """The logits after each call ``(calls, 256)`` of a decoder with one of `FAULTS`, from an empty cache; "" has none."""
    import torch

    model = truth.model()
    slots = torch.zeros(BLOCKS, 2, KV_HEADS, LENGTH + 1, SIZE)  # one more, for what is written too late
    rows: list[np.ndarray] = []
    position = 0
    with truth.one_thread(), torch.inference_mode():
        for size in sizes:
            new = torch.from_numpy(tokens[position : position + size])[None]
            x = model.embed(new)
            for block, kept in zip(model.each_block(), slots, strict=True):
                attended = _attended(fault, block, x, kept, position)
                x = block.after_attention(x, attended)
            rows.append(model.logits(x[:, -1:])[0, 0].numpy())
            position += size
    return np.stack(rows)


def _attended(fault: str, block: GPTBlock, x: Tensor, kept: Tensor, position: int) -> Tensor:
    """The heads' answers ``(1, 6, new, 32)`` after the new keys and values entered `kept` ``(2, 2, LENGTH + 1, 32)``."""
    import torch

    from course_lib.models.gpt import MASKED

    new = x.shape[1]
    positions = position + torch.arange(new)
    q, k, v = block.qkv(block.norm1(x))[0].unflatten(-1, (-1, SIZE)).transpose(0, 1).split((HEADS, KV_HEADS, KV_HEADS))
    angles = torch.arange(new) if fault == "rotary_from_zero" else positions
    if fault != "no_rotation":
        q = _turned(q, angles, fault == "rotary_pairs")
        k = k if fault == "keys_not_rotated" else _turned(k, angles, fault == "rotary_pairs")
    before = kept.clone()
    begin = {"written_at_zero": 0, "written_one_late": position + 1}.get(fault, position)
    kept[0, :, begin : begin + new], kept[1, :, begin : begin + new] = k, v
    shared = torch.arange(HEADS) % KV_HEADS if fault == "heads_interleaved" else torch.arange(HEADS) // (HEADS // KV_HEADS)
    keys, values = (before if fault == "past_read" else kept)[:, shared, :LENGTH]
    scores = q @ keys.transpose(1, 2) * (1.0 if fault == "not_scaled" else SIZE**-0.5)
    scores = scores + torch.where(_seen(fault, positions), 0.0, MASKED)
    return (scores.softmax(-1) @ values)[None]


def _seen(fault: str, positions: Tensor) -> Tensor:
    """Which slots each new token sees, ``(new, LENGTH)``."""
    import torch

    slots, column = torch.arange(LENGTH), positions[:, None]
    if fault == "mask_one_more":
        return slots <= column + 1
    if fault == "mask_one_less":
        return slots < column
    if fault == "no_mask":
        return slots >= 0 * column
    if fault == "mask_by_length_only":
        return slots <= positions[-1] + 0 * column
    if fault == "cache_not_read":
        return (slots <= column) & (slots >= positions[0])
    return slots <= column


def _turned(x: Tensor, positions: Tensor, pairs: bool) -> Tensor:
    """Heads ``(heads, new, 32)`` rotated by their tokens' positions."""
    import torch

    cos, sin = truth.model().cos[positions], truth.model().sin[positions]
    first, second = (x[..., 0::2], x[..., 1::2]) if pairs else x.chunk(2, dim=-1)
    turned = first * cos - second * sin, second * cos + first * sin
    return torch.stack(turned, dim=-1).flatten(-2) if pairs else torch.cat(turned, dim=-1)
