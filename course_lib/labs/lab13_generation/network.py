"""Lab 13's decoder in PyTorch: each token attends to a window of the tokens before it. And the mistakes that learners make, computed."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from course_lib.labs.lab13_generation.given import BLOCKS, HEADS, KV_HEADS, LENGTH, POSITIONS, SIZE, WINDOW, error
from course_lib.models import decoder
from course_lib.models.gpt import GPTBlock
from course_lib.models.signature import Signature
from course_lib.models.torch_threads import one_thread

_SAME = 3e-4  # largest relative difference to the logits of a mistake; rounding gives 1e-5, and two mistakes differ by 0.001


class Windowed(nn.Module):
    """The course's decoder without a cache, int64 ``(1, n)`` to logits ``(1, n, 256)``: a token attends to the last `WINDOW` tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.decoder = decoder(longest=POSITIONS)

    def forward(self, tokens: Tensor) -> Tensor:
        """The logits after each token."""
        count = tokens.shape[1]
        places = torch.arange(count)
        distance = places[:, None] - places
        seen = (distance >= 0) & (distance < WINDOW)
        x = self.decoder.embed(tokens)
        for block in self.decoder.each_block():
            query, key, value = block.heads_of(x, (self.decoder.cos[:count], self.decoder.sin[:count]))
            x = block.after_attention(x, scaled_dot_product_attention(query, key, value, attn_mask=seen, enable_gqa=True))
        return self.decoder.logits(x)

    def signature(self) -> Signature:
        """As the decoder's."""
        return self.decoder.signature()


@cache
def windowed() -> Windowed:
    """The decoder with the shipped weights."""
    with torch.inference_mode(False):  # the exporter rejects weights that were made inside of it
        return Windowed().eval()


def recomputing() -> bytes:
    """The decoder without a cache as ONNX: ``tokens`` int64 ``(batch, n)`` to ``logits`` ``(batch, n, 256)``."""
    from course_lib.models import export_onnx

    return export_onnx(windowed()).SerializeToString()


def logits_after(tokens: np.ndarray) -> np.ndarray:
    """The right logits after each token of a conversation, ``(n, 256)``."""
    with one_thread(), torch.inference_mode():
        return windowed()(torch.from_numpy(tokens)[None])[0].numpy()


# Words after "The logits are those of a decoder ...", and a hint.
FAULTS = {
    "no_window": (
        "without a window: tokens attend to everything in the cache",
        "How far back may a token look, and which comparison says so?",
    ),
    "window_long": ("whose window holds one token too many", f"The window of {WINDOW} tokens counts the token itself."),
    "window_short": ("whose window holds one token too few", f"The window of {WINDOW} tokens counts the token itself."),
    "one_row": (
        "whose mask is the same for all tokens of a call, so that a prompt's tokens see later ones",
        "The mask needs one row for each new token, because each has another position.",
    ),
    "empty_slots": (
        "whose first tokens attend to slots that nothing was written to",
        "How many tokens come before the third one? Its mask must not show more slots.",
    ),
    "own_hidden": ("in which no token sees itself", "Its own key and value are in the cache before the attention reads it."),
    "no_ring": (
        "whose mask compares slot numbers with positions",
        "Which token is in slot 0 after 300 tokens? Compute how many tokens ago each slot was written.",
    ),
    "rotary_from_zero": (
        "whose rotary positions begin at 0 in each call",
        "The first new token of a call has the position `position`. What do you have to add to `steps`?",
    ),
    "rotary_by_slot": (
        "that rotates by the slot, not by the position",
        "Slots are used again, and positions go on: which of the two does the rotation need?",
    ),
    "no_rotation": ("without rotary positions", "Queries and keys are rotated by their positions before the scores."),
    "keys_not_rotated": ("that rotates the queries only", "A score depends on the distance of two tokens if both are rotated."),
    "rotary_pairs": ("that rotates neighboring features as pairs", "This checkpoint rotates feature i with feature i + 16."),
    "written_at_zero": (
        "that writes each call's keys and values from slot 0 on",
        "Which input of the writing operator says where, and what does it hold in the second call?",
    ),
    "past_read": (
        "that attends to the cache as it was before the call",
        "Which tensor has the new keys: past_key, or present_key?",
    ),
    "heads_interleaved": (
        "in which query head h reads head h % 2",
        "Query heads 0, 1 and 2 share a head of keys and values, and 3, 4 and 5 share the other one.",
    ),
    "not_scaled": (
        "whose scores are not divided by the root of the head's size",
        "The operator Attention scales the scores, a MatMul does not.",
    ),
}


def faulty_logits(fault: str, tokens: np.ndarray, sizes: list[int]) -> np.ndarray:
    """The logits after each call ``(calls, 256)`` of a decoder with one of `FAULTS`, from an empty cache; "" has none."""
    model = windowed().decoder
    cache = torch.zeros(BLOCKS, 2, KV_HEADS, LENGTH, SIZE)
    rows: list[np.ndarray] = []
    position = 0
    with one_thread(), torch.inference_mode():
        for size in sizes:
            x = model.embed(torch.from_numpy(tokens[position : position + size])[None])
            for block, kept in zip(model.each_block(), cache, strict=True):
                x = block.after_attention(x, _attended(fault, block, x, kept, position))
            rows.append(model.logits(x[:, -1:])[0, 0].numpy())
            position += size
    return np.stack(rows)


def recognized(probes: list[tuple[np.ndarray, list[int], np.ndarray]]) -> tuple[str, str]:
    """Words and hint of the mistake that gives the logits of all probes (tokens, sizes of the calls, logits), "" if none is known."""
    distances = {
        fault: max(error(faulty_logits(fault, tokens, sizes), logits) for tokens, sizes, logits in probes) for fault in FAULTS
    }
    nearest = min(distances, key=lambda fault: distances[fault])
    return FAULTS[nearest] if distances[nearest] < _SAME else ("", "")


def _attended(fault: str, block: GPTBlock, x: Tensor, kept: Tensor, position: int) -> Tensor:
    """The heads' answers ``(1, 6, new, 32)``, after the new keys and values entered `kept` ``(2, 2, LENGTH, 32)``."""
    new = x.shape[1]
    positions = position + torch.arange(new)
    q, k, v = block.qkv(block.norm1(x))[0].unflatten(-1, (-1, SIZE)).transpose(0, 1).split((HEADS, KV_HEADS, KV_HEADS))
    angles = {"rotary_from_zero": torch.arange(new), "rotary_by_slot": positions % LENGTH}.get(fault, positions)
    if fault != "no_rotation":
        q = _rotated(q, angles, fault == "rotary_pairs")
        k = k if fault == "keys_not_rotated" else _rotated(k, angles, fault == "rotary_pairs")
    before = kept.clone()
    slots = torch.arange(new) if fault == "written_at_zero" else positions % LENGTH
    kept[0, :, slots], kept[1, :, slots] = k, v
    shared = torch.arange(HEADS) % KV_HEADS if fault == "heads_interleaved" else torch.arange(HEADS) // (HEADS // KV_HEADS)
    keys, values = (before if fault == "past_read" else kept)[:, shared]
    scores = q @ keys.transpose(1, 2) * (1.0 if fault == "not_scaled" else SIZE**-0.5)
    scores = scores + torch.where(_seen(fault, positions), 0.0, -6e4)
    return (scores.softmax(-1) @ values)[None]


def _seen(fault: str, positions: Tensor) -> Tensor:
    """Which slots each new token sees, ``(new, LENGTH)``."""
    slots, column = torch.arange(LENGTH), positions[:, None]
    if fault == "no_ring":
        return (slots <= column) & (slots > column - WINDOW)
    if fault == "one_row":
        column = positions[-1] + 0 * column
    ago = (column - slots) % LENGTH  # how many tokens before the new one the slot was written
    window = {"no_window": LENGTH, "window_long": WINDOW + 1, "window_short": WINDOW - 1}.get(fault, WINDOW)
    seen = ago < window
    if fault != "empty_slots":
        seen = seen & (ago <= column)
    return seen & (ago > 0) if fault == "own_hidden" else seen


def _rotated(x: Tensor, positions: Tensor, pairs: bool) -> Tensor:
    """Heads ``(heads, new, 32)`` rotated by their tokens' positions."""
    cos, sin = windowed().decoder.cos[positions], windowed().decoder.sin[positions]
    first, second = (x[..., 0::2], x[..., 1::2]) if pairs else x.chunk(2, dim=-1)
    both = first * cos - second * sin, second * cos + first * sin
    return torch.stack(both, dim=-1).flatten(-2) if pairs else torch.cat(both, dim=-1)
