"""The reference of lab 03: it builds as a learner does, and its functions take medians of rounds."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import numpy as np

from course_lib.engines import Compiler
from course_lib.labs.framework import submission
from course_lib.labs.lab03_tuning import given

TIMING = """\
from statistics import median

EQUAL = 0.02  # tactics whose times differ by less count as equally fast


def order(tactics, budget):
    return tactics * (budget // len(tactics))


def fastest(runs):
    times = {}
    for name, ms in runs:
        times.setdefault(name, []).append(ms)
    typical = {name: median(several[1:]) for name, several in times.items()}
    limit = (1 + EQUAL) * min(typical.values())
    chosen = min(name for name, ms in typical.items() if ms <= limit)
    return chosen, typical[chosen]
"""

CACHE = """\
import json


def key(layer, machine):
    of_layer = [layer[field] for field in ("operator", "shapes", "types", "attributes")]
    parts = of_layer + [machine[field] for field in ("device", "driver", "tensorrt")]
    return json.dumps(parts, sort_keys=True)


def to_measure(layers, machine, cache):
    places, measured = [], set()
    for place, layer in enumerate(layers):
        name = key(layer, machine)
        usable = name in cache and cache[name][0] in layer["tactics"]
        if not usable and name not in measured:
            places.append(place)
            measured.add(name)
    return places


def merge(one, two):
    merged = dict(one)
    for name, entry in two.items():
        other = merged.get(name, entry)
        merged[name] = min(entry, other, key=lambda pair: (pair[1], pair[0]))
    return merged
"""


def write(folder: Path, learner: str = "reference") -> None:
    """All files of a learner's submission."""
    mine = given.drawn(learner)
    with Compiler(given.BUILDER) as compiler:
        answers = {"widths": widths(compiler, mine), "nights": nights(compiler, mine), "builds": builds(mine)}
        given.encoder_recipe(opt_batch(compiler, mine), mine.length).save(folder / "recipe.toml")
    submission.write(folder / given.ANSWERS, learner, **answers)
    (folder / "timing.py").write_text(TIMING)
    (folder / "timing_cache.py").write_text(CACHE)


def widths(compiler: Compiler, mine: given.Instance) -> dict[str, int]:
    """The next even width wherever it removes a kernel."""

    def kernels(widths: dict[str, int]) -> int:
        return len(compiler.build(given.network(widths), given.network_recipe()).layers.kernels)

    chosen = {name: width + width % 2 for name, width in mine.widths.items()}
    fewest = kernels(chosen)
    for name, width in mine.widths.items():
        if kernels({**chosen, name: width}) == fewest:
            chosen[name] = width
    return chosen


def opt_batch(compiler: Compiler, mine: given.Instance) -> int:
    """The largest batch to tune for with the kernels of a single sequence."""

    def kernels(batch: int) -> int:
        return len(compiler.build(given.encoder(), given.encoder_recipe(batch, mine.length)).layers.kernels)

    fewest, (low, high) = kernels(1), given.SEQUENCES
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if kernels(middle) == fewest else (low, middle)
    return low


def nights(compiler: Compiler, mine: given.Instance) -> dict[str, dict[str, object]]:
    """What differs in each night, and how many tactics are new."""
    answers: dict[str, dict[str, object]] = {}
    several = mine.nights()
    before = compiler.build(*several[given.NIGHTS[0]].before).layers  # of every night
    known = {kernel.tactic for kernel in before.kernels}
    for name, night in several.items():
        after = compiler.build(*night.after).layers
        new = [kernel for kernel in after.kernels if kernel.tactic not in known]
        if [kernel.onnx_nodes for kernel in before.kernels] != [kernel.onnx_nodes for kernel in after.kernels]:
            differs = "kernels"
        elif new:
            differs = "tactics"
        else:
            same = list(night.before[0].graph.initializer) == list(night.after[0].graph.initializer)
            differs = "nothing" if same else "weights"
        answers[name] = {"differs": differs, "new_tactics": len(new)}
    return answers


def builds(mine: given.Instance) -> dict[str, object]:
    """The conditions of the record, with bootstrap intervals."""
    record = mine.repeated_builds()
    alone, rng = record.pop("alone")["us"], np.random.default_rng(1)
    conditions = {}
    for condition, row in record.items():
        us = row["us"]
        several, others = (np.median(rng.choice(one, (5000, len(one))), axis=1) for one in (us, alone))
        low, high = np.quantile(several / others, [0.025, 0.975])
        verdict = "as fast" if high <= given.SLOWER else "slower" if low > given.SLOWER else "open"
        conditions[condition] = {"ratio": median(us) / median(alone), "low": low, "high": high, "verdict": verdict}
    fast = [name for name, row in record.items() if row["full"] and conditions[name]["verdict"] == "as fast"]
    return {"conditions": conditions, "setting": min(fast, key=lambda name: float(record[name]["seconds"]))}
