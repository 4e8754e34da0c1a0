"""Bits per byte of held-out text, window by window, so that two networks are compared on the same windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor


def window_bits(logits_of: Callable[[Tensor], Tensor], text: bytes, *, window: int = 256, batch: int = 8) -> np.ndarray:
    """Bits per byte in each window of `text`, float64 ``(windows,)``.

    Each byte is predicted from those before it in its window, which costs ``-log2`` of its probability.

    Args:
        logits_of: from tokens, int64 ``(n, window - 1)``, to logits ``(n, window - 1, 256)``.
        text: at least two windows. The rest that fills no window does not count.
        window: bytes per window. The first byte of a window is not predicted.
        batch: windows per call.

    Raises:
        ValueError: the text is shorter than two windows.
    """
    import torch
    from torch.nn.functional import cross_entropy

    if len(text) < 2 * window:
        raise ValueError(f"need at least two windows of {window} bytes, got {len(text)} bytes of text")
    rows = torch.from_numpy(np.frombuffer(text[: len(text) // window * window], np.uint8).reshape(-1, window).astype(np.int64))
    found = []
    with torch.inference_mode():
        for part in rows.split(batch):
            logits = logits_of(part[:, :-1]).float()
            found.append(cross_entropy(logits.transpose(1, 2), part[:, 1:], reduction="none").double().mean(1))
    return (torch.cat(found) / np.log(2)).numpy()


@dataclass(frozen=True)
class Cost:
    """How many bits per byte more than the baseline a changed network needs, on the same windows.

    Attributes:
        mean: over the windows; negative if the changed network is better.
        half_width: of the 95 % confidence interval of this mean, from the differences between windows.
    """

    mean: float
    half_width: float

    def __str__(self) -> str:
        return f"{self.mean:+.4f} ± {self.half_width:.4f}"


def cost(changed: Sequence[float], baseline: Sequence[float]) -> Cost:
    """Compare two networks by `window_bits` of the same windows.

    Raises:
        ValueError: different numbers of windows, or fewer than two.
    """
    if len(changed) != len(baseline) or len(baseline) < 2:
        raise ValueError(f"need the same two or more windows, got {len(changed)} and {len(baseline)}")
    more = np.asarray(changed) - np.asarray(baseline)
    return Cost(float(more.mean()), float(1.96 * more.std(ddof=1) / np.sqrt(len(more))))
