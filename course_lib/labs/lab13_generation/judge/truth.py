"""The right answers, by the course's own FP32 decoder in PyTorch, and how answers are compared with them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from course_lib.labs.lab13_generation.network import LENGTH, VOCABULARY

if TYPE_CHECKING:
    from course_lib.models.gpt import GPT

TIE = 1e-3  # two logits that are closer to each other are a tie, and either token is right
# Largest relative error of the logits. Measured: ONNX Runtime against PyTorch 1e-6 to 5e-6; the smallest mistake in `faults` 0.02.
MOST_ERROR = 1e-3


@contextmanager
def one_thread() -> Iterator[None]:
    """PyTorch computes with one thread inside: steps are so short that several threads on a busy machine mostly wait for each other."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@cache
def model() -> GPT:
    """The course's decoder, with the shipped weights."""
    from course_lib.models import decoder

    return decoder()


@dataclass(frozen=True)
class Request:
    """A prompt and its right continuation.

    Attributes:
        prompt: int64 ``(n,)``.
        tokens: the most likely tokens after it, one after the other, ``(count,)``.
        logits: the logits behind each of them, float32 ``(count, 256)``.
    """

    prompt: np.ndarray
    tokens: np.ndarray
    logits: np.ndarray

    @property
    def fed(self) -> np.ndarray:
        """What a decoder is fed: the prompt, then every token but the last."""
        return np.concatenate([self.prompt, self.tokens[:-1]])

    @property
    def sizes(self) -> list[int]:
        """The calls: the prompt in one, then one for each token."""
        return [len(self.prompt)] + [1] * (len(self.tokens) - 1)


def request(prompt: np.ndarray, count: int) -> Request:
    """The right continuation of a prompt, `count` tokens."""
    import torch

    tokens, position = torch.from_numpy(prompt)[None], torch.zeros(1, dtype=torch.int64)
    rows: list[np.ndarray] = []
    with one_thread(), torch.inference_mode():
        slots = model().empty_cache(len(prompt) + count)
        for _ in range(count):
            logits = model().step(tokens, position, slots, last_only=True)[0]
            position = position + tokens.shape[1]
            tokens = logits[:, -1].argmax(-1, keepdim=True)
            rows.append(logits[0, -1].numpy())
    found = np.stack(rows)
    return Request(prompt, found.argmax(1), found)


def logits_after(tokens: np.ndarray) -> np.ndarray:
    """The logits after each token of a sequence, ``(n, 256)``."""
    import torch

    with one_thread(), torch.inference_mode():
        return model()(torch.from_numpy(tokens)[None])[0].numpy()


def entries(prompt: np.ndarray) -> np.ndarray:
    """The right cache after a prompt on an empty one: a cache of `CACHES` each, float32 ``(8, 2, LENGTH, 32)``."""
    import torch

    with one_thread(), torch.inference_mode():
        slots = model().empty_cache(LENGTH)
        model().step(torch.from_numpy(prompt)[None], torch.zeros(1, dtype=torch.int64), slots, last_only=True)
        return torch.cat(slots).numpy()


def logits_from(cache: np.ndarray, position: int, tokens: np.ndarray) -> np.ndarray:
    """The logits after each of some tokens that are fed one by one, with a cache as `entries` returns it, ``(n, 256)``."""
    import torch

    with one_thread(), torch.inference_mode():
        slots = [one[None].clone() for one in torch.from_numpy(cache)]
        rows = [
            model()
            .step(torch.tensor([[int(token)]]), torch.tensor([position + number]), slots, last_only=True)[0][0, -1]
            .numpy()
            for number, token in enumerate(tokens)
        ]
    return np.stack(rows)


def secret_prompt(rng: np.random.Generator, length: int) -> np.ndarray:
    """A prompt that no table can hold: held-out text from a secret place, with bytes at secret places replaced."""
    from course_lib.models import course_text

    text = np.frombuffer(course_text("test"), np.uint8).astype(np.int64)
    begin = int(rng.integers(len(text) - LENGTH))
    prompt = text[begin : begin + length].copy()
    replaced = rng.random(length) < 0.15
    prompt[replaced] = rng.integers(0, VOCABULARY, int(replaced.sum()))
    return prompt


def wrong_tokens(want: np.ndarray, have: np.ndarray) -> np.ndarray:
    """Indices of calls whose most likely token is not the right one, of logits ``(calls, 256)``. A tie is not a mistake."""
    chosen = have.argmax(1)
    rows = np.arange(len(want))
    return np.flatnonzero(want.max(1) - want[rows, chosen] > TIE)


def error(want: np.ndarray, have: np.ndarray) -> float:
    """The relative error of logits ``(calls, 256)``, of the call that is furthest off."""
    assert want.shape == have.shape and want.shape[1] == VOCABULARY
    return float((np.linalg.norm(have - want, axis=1) / np.linalg.norm(want, axis=1)).max())
