"""Solutions of the exercises in lecture 4."""

from __future__ import annotations

import json
from math import ceil
from statistics import median
from typing import Any


def waves(rows: int, columns: int, tile: tuple[int, int], multiprocessors: int) -> int:
    """4.1: round up in both directions, and again for the rounds."""
    tiles = ceil(rows / tile[0]) * ceil(columns / tile[1])
    return ceil(tiles / multiprocessors)


def choose(times_ms: dict[str, list[float]], tolerance: float = 0.02) -> str:
    """4.2: the median resists a disturbed round, and the order of names resists the noise of equals."""
    medians = {name: median(times) for name, times in times_ms.items()}
    limit = min(medians.values()) * (1 + tolerance)
    return min(name for name, time in medians.items() if time <= limit)


def timing_key(layer: dict[str, Any], machine: dict[str, str]) -> str:
    """4.3: everything that the time depends on, and nothing else."""
    work = {field: layer[field] for field in ("operator", "shapes", "types", "attributes")}
    where = {field: machine[field] for field in ("gpu", "tensorrt", "cuda")}
    return json.dumps([work, where], sort_keys=True)


def build_again(quiet_us: list[float], engines_us: dict[str, list[float]], tolerance: float = 0.02) -> list[str]:
    """4.4: quiet builds differ, so the slowest of them is the limit; the median resists a disturbed reading."""
    limit = max(quiet_us) * (1 + tolerance)
    medians = {name: median(times) for name, times in engines_us.items()}
    return sorted((name for name, time in medians.items() if time > limit), key=lambda name: -medians[name])


def winner(sweep: list[tuple[str, float | None, list[float]]], threshold: float) -> str:
    """4.5: the fastest engine whose losses are all within the threshold; a comparison with NaN is false."""
    accepted = {route: ms for route, ms, losses in sweep if ms is not None and all(loss <= threshold for loss in losses)}
    return min(accepted, key=lambda route: accepted[route], default="")
