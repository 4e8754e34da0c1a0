"""Training of the language model's checkpoint: ``python -m course_lib.models.training gpt``."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from rich.progress import track
from torch import Tensor
from torch.nn.functional import cross_entropy

from course_lib.models import weights
from course_lib.models.gpt import GPT, LONGEST, decoder
from course_lib.models.text_corpus import bits_per_byte, course_text

STEPS, BATCH, LEARNING_RATE, WEIGHT_DECAY = 1400, 4, 3e-3, 0.1


def train_gpt(*, seed: int = 0, progress: bool = True, steps: int = STEPS) -> float:
    """Train the language model from scratch, write its checkpoint, and measure the stored weights.

    Args:
        seed: seed of the initial weights and of the passages.
        progress: show a bar.
        steps: number of batches of 4 passages of 512 bytes, each from a random place of the training text.

    Returns:
        Bits per byte of the stored half-precision weights on the held-out text.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = decoder(pretrained=False).train()
        matrices = [parameter for parameter in model.parameters() if parameter.ndim == 2]
        others = [parameter for parameter in model.parameters() if parameter.ndim != 2]
        groups = [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": others, "weight_decay": 0.0}]
        optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.95))
        rate = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, LEARNING_RATE, total_steps=steps, pct_start=0.1, cycle_momentum=False
        )
        for passages in track(_batches(seed, steps), "training gpt", total=steps, disable=not progress):
            optimizer.zero_grad()
            cross_entropy(model(passages[:, :-1]).flatten(0, 1), passages[:, 1:].flatten()).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            rate.step()
    weights.save(model.eval(), "gpt")
    return bits_per_byte(logits_by(decoder()), course_text("test"), window=LONGEST)


def logits_by(model: GPT) -> Callable[[np.ndarray], np.ndarray]:
    """`model` as a function from int64 arrays ``(n, s)`` to logits ``(n, s, 256)``, as `bits_per_byte` calls it."""

    def logits(tokens: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            return model(torch.from_numpy(tokens)).float().numpy()

    return logits


def _batches(seed: int, steps: int) -> Iterator[Tensor]:
    """Int64 ``(4, 513)``: a passage and the byte after it."""
    rng = np.random.default_rng(seed)
    text = np.frombuffer(course_text("train"), np.uint8)
    for _ in range(steps):
        starts = rng.integers(0, len(text) - LONGEST, BATCH)
        yield torch.from_numpy(text[starts[:, None] + np.arange(LONGEST + 1)].astype(np.int64))
