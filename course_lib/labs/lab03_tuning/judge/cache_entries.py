"""Secret entries of caches: a key, the name of a tactic, and its milliseconds."""

from __future__ import annotations

from typing import Any

import numpy as np

from course_lib.labs.lab03_tuning.judge.cache_builds import Network, signature


def drawn_cache(drawn: Network, count: int) -> dict[str, Any]:
    """Entries whose keys say what a time depends on, so that they have spaces, quotes and brackets, as other keys may."""
    rng, layers = drawn.rng, [drawn.drawn_layer() for _ in range(count)]
    values = drawn_entries(rng, count).values()
    return {f"{signature(layer)} {drawn.machine['device']}": entry for layer, entry in zip(layers, values, strict=True)}


def drawn_entries(rng: np.random.Generator, count: int) -> dict[str, Any]:
    """Entries whose keys are short, so that many of them fit into a file."""
    names = (f"tactic_{number:08x}" for number in rng.integers(0, 1 << 32, count))
    return {key: [name, drawn_ms(rng)] for key, name in zip(drawn_texts(rng, count), names, strict=True)}


def drawn_texts(rng: np.random.Generator, count: int) -> list[str]:
    """Short texts, such as keys. All differ."""
    return [rng.bytes(16).hex() for _ in range(count)]


def drawn_ms(rng: np.random.Generator) -> float:
    """Milliseconds, from 10 ns to 1 s. Half of those from 1 ms on are whole numbers."""
    ms = float(f"{10 ** rng.uniform(-5, 3):.6g}")
    return int(ms) if ms >= 1 and rng.random() < 0.5 else ms
