"""The text that the course's language model learns, a held-out part, and the measure on it: bits per byte.

The text is the course's own: lectures, labs, documentation and docstrings as they were when ``docs/make_corpus.py`` froze them.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np

FOLDER = Path(__file__).parent / "text"


def course_text(split: Literal["train", "test"]) -> bytes:
    """The text for training and calibration, or the held-out documents that no checkpoint was trained on, as UTF-8.

    Raises:
        ValueError: an unknown split.
    """
    if split not in ("train", "test"):
        raise ValueError(f"split must be 'train' or 'test', got {split!r}")
    return _read(split)


def bits_per_byte(logits_of: Callable[[np.ndarray], np.ndarray], text: bytes, *, window: int = 256, batch: int = 8) -> float:
    """How many bits a language model needs per byte of `text`: the mean of ``-log2`` of the probability of each byte.

    The text is cut into windows, and a byte is predicted from those before it in its window. The first byte of a window and
    the rest that fills no window do not count.

    Args:
        logits_of: from tokens, int64 ``(n, window - 1)``, to logits ``(n, window - 1, 256)``: torch, ONNX Runtime or an engine.
        text: at least one window.
        window: bytes per window.
        batch: windows per call; the last call may have fewer.

    Raises:
        ValueError: the text is shorter than a window.
    """
    if len(text) < window:
        raise ValueError(f"need at least one window of {window} bytes, got {len(text)} bytes of text")
    rows = np.frombuffer(text[: len(text) // window * window], np.uint8).reshape(-1, window).astype(np.int64)
    bits = 0.0
    for start in range(0, len(rows), batch):
        chosen = rows[start : start + batch]
        logits = logits_of(chosen[:, :-1]).astype(np.float64)
        logits -= logits.max(axis=-1, keepdims=True)
        right = np.take_along_axis(logits, chosen[:, 1:, None], axis=-1)[..., 0]
        bits += float((np.log(np.exp(logits).sum(axis=-1)) - right).sum()) / np.log(2)
    return bits / (len(rows) * (window - 1))


@lru_cache
def _read(split: str) -> bytes:
    return gzip.decompress((FOLDER / f"{split}.txt.gz").read_bytes())
