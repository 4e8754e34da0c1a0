"""Solutions of the exercises in lecture 12."""

from __future__ import annotations

import sqlite3
from collections import Counter
from itertools import pairwise

Span = tuple[str, float, float]


def idle_share(work: list[tuple[float, float]], start: float, end: float) -> float:
    """12.1: walk over the work in order, and remember until when the device is busy."""
    idle, busy_until = 0.0, start
    for begins, ends in sorted(work):
        idle += max(0.0, min(begins, end) - busy_until)
        busy_until = max(busy_until, min(ends, end))
    return (idle + end - busy_until) / (end - start)


def longest_gap(work: list[tuple[float, float]], host: list[Span]) -> tuple[float, float, str]:
    """12.2: the longest pause of the device, and the host's name with the most time in it."""
    gaps = [(before[1], after[0]) for before, after in pairwise(work)]
    start, end = max(gaps, key=lambda gap: gap[1] - gap[0])
    overlap: Counter[str] = Counter()
    for name, begins, ends in host:
        overlap[name] += max(0, min(end, ends) - max(start, begins))
    return start, end, overlap.most_common(1)[0][0]


def self_times(spans: list[Span]) -> dict[str, float]:
    """12.3: each call gives its time to its own name, and takes it from its caller."""
    found: dict[str, float] = {}
    callers: list[Span] = []
    for name, start, end in sorted(spans, key=lambda span: (span[1], -span[2])):
        while callers and callers[-1][2] <= start:
            callers.pop()
        found[name] = found.get(name, 0) + end - start
        if callers:
            found[callers[-1][0]] -= end - start
        callers.append((name, start, end))
    return found


def copy_bandwidth(database: sqlite3.Connection, kind: int) -> float:
    """12.4: bytes per nanosecond are GB/s."""
    query = "SELECT SUM(bytes), SUM(end - start) FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE copyKind = ?"
    moved, nanoseconds = database.execute(query, (kind,)).fetchone()
    return float(moved / nanoseconds)


def roof(operations: float, bytes_moved: float, seconds: float, peak_operations: float, peak_bytes: float) -> tuple[str, float]:
    """12.5: the longer of the two least times is the limit."""
    arithmetic, memory = operations / peak_operations, bytes_moved / peak_bytes
    share = max(arithmetic, memory) / seconds
    if share < 0.6:
        return "latency", share
    return ("memory" if memory > arithmetic else "arithmetic"), share


def gain(parts_ms: dict[str, float], name: str, factor: float) -> float:
    """12.6: Amdahl's law for one range."""
    before = sum(parts_ms.values())
    return before / (before - parts_ms[name] + parts_ms[name] / factor)
