"""Recorded tactics and builds, and tables that are made from them by drawing rivals of the recorded tactics."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

Tactic = dict[str, Any]  # name, ms, workspace_mib, reads, writes
FORMATS = ("NCHW", "NHWC")
WORKSPACES = (0, 0, 1, 4, 16, 64, 256)  # MiB, from which the workspace of a tactic is drawn
LARGE_BATCH = 64
DEFAULT = "tuned at 8"  # the engine with the default settings, in the record


@cache
def recorded_layers() -> tuple[tuple[str, str, float], ...]:
    """Layer, tactic and milliseconds of ResNet-50 in FP16 on an H200, without reformats."""
    from course_lib.benchmark import recorded

    rows = recorded("tactics_h200").rows
    return tuple(
        (row["layer"], row["tactic"], row["ms"])
        for row in rows
        if row["precision"] == "fp16" and not row["layer"].startswith("Reformatting")
    )


def recorded_ms() -> np.ndarray:
    """The times of these layers."""
    return np.array([ms for _, _, ms in recorded_layers()])


def table(rng: np.random.Generator, layers: int, tactics: int, *, formats: bool) -> tuple[list[list[Tactic]], list[float]]:
    """Consecutive recorded layers, each with the recorded time and drawn rivals, and the times of reformats between them.

    Args:
        formats: whether tactics differ in their formats; otherwise no reformat is needed.
    """
    recorded = recorded_layers()
    first = int(rng.integers(0, len(recorded) - layers + 1))
    chain = [_rivals(rng, recorded[first + index][2], tactics, formats) for index in range(layers)]
    between = [
        round(float(rng.uniform(0.15, 0.6)) * min(one["ms"] for one in chain[index]), 5) if formats else 0.0
        for index in range(layers - 1)
    ]
    return chain, between


def _rivals(rng: np.random.Generator, ms: float, count: int, formats: bool) -> list[Tactic]:
    found = []
    for index in range(count):
        workspace = 0 if index == 0 else int(rng.choice(WORKSPACES))
        # What needs scratch memory is often faster, or it would not be offered.
        speed = rng.uniform(1.0, 1.5) if not workspace else rng.uniform(0.8, 1.25)
        reads, writes = (str(rng.choice(FORMATS)) for _ in range(2)) if formats else (FORMATS[1], FORMATS[1])
        found.append(
            {
                "name": f"tactic_{rng.integers(0, 1 << 32):08x}",
                "ms": round(float(ms * speed), 5),
                "workspace_mib": workspace,
                "reads": reads,
                "writes": writes,
            }
        )
    return [found[index] for index in rng.permutation(count)]


@cache
def levels() -> dict[int, tuple[float, float]]:
    """For each optimization level: seconds in the compiler and milliseconds at batch 64, of the recorded classifier on an H200."""
    rows = _engine_rows()
    return {level: _measured(rows, DEFAULT if level == 3 else f"level {level}", "level") for level in range(6)}


@cache
def workspaces() -> dict[int, tuple[float, float]]:
    """The same for each workspace in MiB; 1024 is the default."""
    rows = _engine_rows()
    return {mib: _measured(rows, DEFAULT if mib == 1024 else f"workspace {mib} MiB", "workspace") for mib in (1, 16, 256, 1024)}


def _engine_rows() -> Sequence[dict[str, Any]]:
    from course_lib.benchmark import recorded

    return recorded("engines_h200").rows


def _measured(rows: Sequence[dict[str, Any]], engine: str, group: str) -> tuple[float, float]:
    build = next(row for row in rows if row["table"] == "build" and row["engine"] == engine)
    run = next(
        row
        for row in rows
        if row["table"] == "latency" and (row["group"], row["engine"], row["batch"]) == (group, engine, LARGE_BATCH)
    )
    return build["compiler_s"], run["ms"]
