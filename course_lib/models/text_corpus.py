"""The text that the course's language model learns, and a held-out part.

The text is the course's own: lectures, labs, documentation and docstrings as they were when ``docs/make_corpus.py`` froze them.
"""

from __future__ import annotations

import gzip
from functools import cache
from pathlib import Path
from typing import Literal

FOLDER = Path(__file__).parent / "text"


@cache
def course_text(split: Literal["train", "test"]) -> bytes:
    """The text for training and calibration, or the held-out documents that no checkpoint was trained on, as UTF-8.

    Raises:
        ValueError: an unknown split.
    """
    if split not in ("train", "test"):
        raise ValueError(f"split must be 'train' or 'test', got {split!r}")
    return gzip.decompress((FOLDER / f"{split}.txt.gz").read_bytes())
