"""The reference of lab 03: medians of rounds, the best way to each format, sums of savings, and a cache that survives."""

from __future__ import annotations

OPTIMIZATION_LEVEL, WORKSPACE_MIB = 2, 1

TIMING = """\
from statistics import median

EQUAL = 0.02  # tactics whose times differ by less count as equally fast


def fastest(tactics, run, budget):
    times = {name: [] for name in sorted(tactics)}
    for _ in range(budget // len(times)):
        for name in times:
            times[name].append(run(name))
    typical = {name: median(several[1:]) for name, several in times.items()}
    limit = (1 + EQUAL) * min(typical.values())
    chosen = min(name for name, ms in typical.items() if ms <= limit)
    return chosen, typical[chosen]
"""

CHOICE = """\
def choose(layers, reformats, workspace):
    best = {}  # by the format that the last layer writes: (ms, names)
    for index, tactics in enumerate(layers):
        ways = {}
        for tactic in tactics:
            if tactic["workspace_mib"] > workspace:
                continue
            for written, (ms, names) in (best or {tactic["reads"]: (0.0, [])}).items():
                total = ms + tactic["ms"]
                if written != tactic["reads"]:
                    total += reformats[index - 1]
                way = (total, [*names, tactic["name"]])
                ways[tactic["writes"]] = min(way, ways.get(tactic["writes"], way))
        best = ways
    return min(best.values())[1]
"""

BUDGET = """\
from collections import Counter


def worth_measuring(layers, budget):
    counts = Counter(row["signature"] for row in layers)
    rows = {row["signature"]: row for row in layers}
    best = {0: (0.0, [])}  # by the time that is spent: (saving, signatures)
    for name, row in rows.items():
        for spent, (saving, names) in list(best.items()):
            now = spent + row["measuring_ms"]
            more = saving + counts[name] * row["expected_saving_ms"]
            if now <= budget and more > best.get(now, (-1.0,))[0]:
                best[now] = (more, [*names, name])
    return max(best.values())[1]
"""

CACHE = """\
import json
import os
from pathlib import Path


def key(layer, machine):
    of_layer = [layer[field] for field in ("operator", "shapes", "types", "attributes")]
    parts = of_layer + [machine[field] for field in ("device", "driver", "tensorrt")]
    return json.dumps(parts, sort_keys=True)


def tuned(layers, machine, cache, measure):
    cache, names = dict(cache), []
    for layer in layers:
        entry = cache.get(key(layer, machine))
        if entry is None or entry[0] not in layer["tactics"]:
            entry = cache[key(layer, machine)] = measure(layer)
        names.append(entry[0])
    return names, cache


def merge(one, two):
    merged = dict(one)
    for name, entry in two.items():
        other = merged.get(name, entry)
        merged[name] = min(entry, other, key=lambda pair: (pair[1], pair[0]))
    return merged


def load(path):
    try:
        entries = json.loads(Path(path).read_text())
        cache = {name: (tactic, ms) for name, (tactic, ms) in entries.items()}
        kinds = {(type(tactic), type(ms)) for tactic, ms in cache.values()}
        return cache if kinds <= {(str, int), (str, float)} else {}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def save(cache, path):
    path = Path(path)
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(merge(load(path), cache)))
    os.replace(temporary, path)
"""
