"""Arithmetic of time intervals: union, complement, and intersection."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Interval = tuple[float, float]  # start and end; an interval whose end is not after its start is empty


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The same points as disjoint intervals in order; overlapping and touching ones are joined, empty ones dropped."""
    joined: list[Interval] = []
    for start, end in sorted(interval for interval in intervals if interval[1] > interval[0]):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined


def total(disjoint: Iterable[Interval]) -> float:
    """The length of disjoint intervals together."""
    return sum(end - start for start, end in disjoint)


def complement(disjoint: Iterable[Interval], start: float, end: float) -> list[Interval]:
    """The parts between `start` and `end` that disjoint intervals in order do not cover."""
    left: list[Interval] = []
    for busy_start, busy_end in disjoint:
        if busy_start > start:
            left.append((start, min(busy_start, end)))
        start = max(start, busy_end)
        if start >= end:
            break
    if start < end:
        left.append((start, end))
    return [interval for interval in left if interval[1] > interval[0]]


def intersection(first: Sequence[Interval], second: Sequence[Interval]) -> list[Interval]:
    """The parts that both of two sets of disjoint intervals in order cover."""
    both: list[Interval] = []
    i = j = 0
    while i < len(first) and j < len(second):
        start, end = max(first[i][0], second[j][0]), min(first[i][1], second[j][1])
        if end > start:
            both.append((start, end))
        if first[i][1] < second[j][1]:
            i += 1
        else:
            j += 1
    return both
