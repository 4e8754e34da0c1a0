"""The reference of lab 03: it builds as a learner does, and its functions take medians of rounds."""

from __future__ import annotations

from pathlib import Path
from statistics import median

from course_lib.engines import Compiler
from course_lib.labs.framework import submission
from course_lib.labs.lab03_tuning import checks, given

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
    for name, night in several.items():
        differs, new = checks.difference(night, before, compiler.build(*night.after).layers)
        answers[name] = {"differs": differs, "new_tactics": new}
    return answers


def builds(mine: given.Instance) -> dict[str, object]:
    """The conditions of the record, with bootstrap intervals."""
    record = mine.repeated_builds()
    alone = record.pop("alone")["us"]
    conditions, verdicts = {}, {}
    for name, row in record.items():
        low, high = checks.interval(row["us"], alone)
        verdicts[name] = checks.verdict(low, high)
        ratio = median(row["us"]) / median(alone)
        conditions[name] = {"ratio": ratio, "low": low, "high": high, "verdict": verdicts[name]}
    return {"conditions": conditions, "setting": checks.cheapest(record, verdicts)}
