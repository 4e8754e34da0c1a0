"""Solutions of the exercises in lecture 14."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


def plan_key(facts: dict[str, Any]) -> str:
    """14.1: everything that the plan depends on, in one order and with its names."""
    inputs = {name: facts[name] for name in ("recipe", "backend", "version", "device")}
    inputs["model"] = hashlib.sha256(facts["model"]).hexdigest()
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def get_plan(path: Path, build: Callable[[], bytes]) -> bytes:
    """14.2: read and verify, or build and rename; no failure of the disk stops the service."""
    label = path.with_suffix(".sha256")
    with contextlib.suppress(OSError):
        stored = path.read_bytes()
        if label.read_text() == hashlib.sha256(stored).hexdigest():
            return stored
    plan = build()
    with contextlib.suppress(OSError):
        for target, content in ((path, plan), (label, hashlib.sha256(plan).hexdigest().encode())):
            incomplete = target.with_name(f"{target.name}.{os.getpid()}")
            incomplete.write_bytes(content)
            os.replace(incomplete, target)
    return plan


def first_right(ways: dict[str, Callable[[], Callable[[Any], Any]]], request: Any, expected: np.ndarray) -> str:
    """14.3: a way is used if it opens, answers, and answers right."""
    for name, open_way in ways.items():
        with contextlib.suppress(Exception):
            found = open_way()(request)
            if found.shape == expected.shape and np.allclose(found, expected, atol=1e-3):
                return name
    raise RuntimeError(f"none of {list(ways)} answers the known request")


def batched_latencies(arrivals_ms: list[float], run_ms: dict[int, float], most: int) -> list[float]:
    """14.4: each run takes the requests that wait when it starts."""
    latencies: list[float] = []
    free = 0.0
    while len(latencies) < len(arrivals_ms):
        waiting = arrivals_ms[len(latencies) :]
        start = max(free, waiting[0])
        taken = [arrival for arrival in waiting if arrival <= start][:most]
        free = start + run_ms[len(taken)]
        latencies += [free - arrival for arrival in taken]
    return latencies
