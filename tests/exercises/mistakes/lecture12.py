"""Wrong answers to the exercises of lecture 12."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np


def _idle(clipped=True, at_the_end=True, latest=True, share=True):
    def idle_share(work, start, end):
        idle, until = 0, start
        for begins, ends in sorted(work):
            idle += max(0, begins - until) if clipped else begins - until
            until = max(until, ends) if latest else ends
        idle += max(0, end - until) if at_the_end and clipped else end - until if at_the_end else 0
        return idle / (end - start) if share else idle

    return idle_share


def _covered(work, start, end):
    clipped = [(max(a, start), min(b, end)) for a, b in work]
    return sum(b - a for a, b in clipped)


def _last_to_its_end(work, start, end):
    idle, until = 0, start
    for begins, ends in sorted(work):
        idle += max(0, begins - until)
        until = max(until, ends)
    return (idle + end - until) / (end - start)


def _gap(pick=max, inside=True, added=True, first=False):
    def longest_gap(work, host):
        gaps = [(before[1], after[0]) for before, after in pairwise(work)]
        start, end = gaps[0] if first else pick(gaps, key=lambda gap: gap[1] - gap[0])
        overlap = Counter()
        for name, begins, ends in host:
            time = max(0, min(end, ends) - max(start, begins)) if inside else ends - begins
            overlap[name] = overlap[name] + time if added else max(overlap[name], time)
        return start, end, overlap.most_common(1)[0][0]

    return longest_gap


def _at_the_start(work, host):
    start, end, _ = _gap()(work, host)
    return start, end, next(name for name, begins, ends in host if begins <= start < ends)


def _self(below="children", closed=True, added=True, first_only=False):
    def self_times(spans):
        found, open_spans, served = {}, [], set()
        for name, start, end in sorted(spans, key=lambda span: (span[1], -span[2])):
            while open_spans and (open_spans[-1][2] <= start if closed else open_spans[-1][2] < start):
                open_spans.pop()
            found[name] = (found.get(name, 0) if added else 0) + end - start
            for caller in {"children": open_spans[-1:], "all": open_spans, "nothing": []}[below]:
                if not (first_only and caller in served):
                    found[caller[0]] -= end - start
                    served.add(caller)
            open_spans.append((name, start, end))
        return found

    return self_times


def _roof(share=max, bound=None, latency=0.6, inverse=False):
    def roof(operations, bytes_moved, seconds, peak_operations, peak_bytes):
        arithmetic, memory = operations / peak_operations, bytes_moved / peak_bytes
        reached = share(arithmetic, memory) / seconds
        if reached < latency:
            return "latency", reached
        return bound or ("memory" if memory > arithmetic else "arithmetic"), 1 / reached if inverse else reached

    return roof


def _bandwidth(result, kind=None):
    def copy_bandwidth(database, asked):
        query = "SELECT start, end, bytes FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE copyKind IN (?, ?)"
        kinds = (1, 2) if kind == "all" else (kind or asked,) * 2
        return float(result(*np.array(database.execute(query, kinds).fetchall(), float).T))

    return copy_bandwidth


def _sums(starts, ends, moved):
    return moved.sum() / (ends - starts).sum()


MISTAKES = {
    "12.1": {
        "busy": lambda work, start, end: 1 - _last_to_its_end(work, start, end),
        "durations": lambda work, start, end: 1 - _covered(work, start, end) / (end - start),
        "the one before": _idle(latest=False),
        "not to the end": _idle(at_the_end=False),
        "microseconds": _idle(share=False),
        "ends after the window": _last_to_its_end,
    },
    "12.2": {
        "longest event": _gap(inside=False),
        "running at the start": _at_the_start,
        "first gap": _gap(first=True),
        "shortest gap": _gap(pick=min),
        "single events": _gap(added=False),
    },
    "12.3": {
        "total": _self(below="nothing"),
        "everything below": _self(below="all"),
        "not closed": _self(closed=False),
        "overwritten": _self(added=False),
        "one child": _self(first_only=True),
    },
    "12.4": {
        "mean": _bandwidth(lambda starts, ends, moved: (moved / (ends - starts)).mean()),
        "from first to last": _bandwidth(lambda starts, ends, moved: moved.sum() / (ends.max() - starts.min())),
        "GiB": _bandwidth(lambda *columns: _sums(*columns) * 1e9 / 2**30),
        "all kinds": _bandwidth(_sums, kind="all"),
        "bytes per second": _bandwidth(lambda *columns: _sums(*columns) * 1e9),
        "seconds": _bandwidth(lambda *columns: _sums(*columns) / 1e9),
        "always to the device": _bandwidth(_sums, kind=1),
    },
    "12.5": {
        "arithmetic peak": _roof(share=lambda arithmetic, memory: arithmetic),
        "inverse": _roof(inverse=True),
        "sum": _roof(share=lambda arithmetic, memory: arithmetic + memory),
        "always memory": _roof(bound="memory"),
        "always arithmetic": _roof(bound="arithmetic"),
        "never latency": _roof(latency=0),
    },
    "12.6": {
        "share": lambda parts, name, factor: parts[name] / sum(parts.values()),
        "inverse": lambda parts, name, factor: 1 - (parts[name] - parts[name] / factor) / sum(parts.values()),
        "of the part": lambda parts, name, factor: factor,
        "removed": lambda parts, name, factor: sum(parts.values()) / (sum(parts.values()) - parts[name]),
        "what remains": lambda parts, name, factor: sum(parts.values()) - parts[name],
    },
}
