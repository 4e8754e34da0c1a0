"""Submissions for lab 03: right in another way, or with the mistakes that learners make."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from course_lib.labs.lab03_tuning import given, reference
from course_lib.recipe import Recipe

MINE = given.drawn("reference")
TIMING = """
import numpy as np

def order(tactics, budget):
    there = sorted(tactics)
    return (there + there[::-1]) * (budget // len(there) // 2)

def fastest(runs):
    names = sorted({name for name, _ in runs})
    low = {one: np.quantile([ms for name, ms in runs if name == one][2:], 0.3) for one in names}
    chosen = next(name for name in names if low[name] <= 1.02 * min(low.values()))
    return [chosen, low[chosen]]
"""

CACHE = """
import hashlib
import json

def key(layer, machine):
    work = sorted((field, json.dumps(layer[field], sort_keys=True)) for field in layer if field not in ("name", "tactics"))
    where = sorted((field, machine[field]) for field in machine if field != "host")
    return hashlib.sha256(repr((work, where)).encode()).hexdigest()

def to_measure(layers, machine, cache):
    first = {}
    for place, layer in enumerate(layers):
        tactic, _ = cache.get(key(layer, machine), ("", 0.0))
        if tactic not in layer["tactics"]:
            first.setdefault(key(layer, machine), place)
    return sorted(first.values())

def merge(one, two):
    several = {name: [cache[name] for cache in (one, two) if name in cache] for name in {**one, **two}}
    return {name: sorted(entries, key=lambda entry: entry[::-1])[0] for name, entries in several.items()}
"""


def another(folder: Path) -> None:
    """Widths in multiples of 8, intervals with other seeds, and other functions, over the reference's files."""
    trained, chosen = MINE.widths, read(folder, "widths")
    write(folder, "widths", {name: width if width == trained[name] else -(-width // 8) * 8 for name, width in chosen.items()})
    answer = read(folder, "builds")
    for condition, row in answer["conditions"].items():
        row["low"], row["high"] = interval(condition, seed=9)
    write(folder, "builds", answer)
    Recipe.load(folder / "recipe.toml").model_copy(update={"optimization_level": 5}).save(folder / "recipe.toml")
    (folder / "timing.py").write_text(TIMING)
    (folder / "timing_cache.py").write_text(CACHE)


def functions(folder: Path) -> None:
    """Only the files with functions, which follow from no build."""
    (folder / "timing.py").write_text(reference.TIMING)
    (folder / "timing_cache.py").write_text(reference.CACHE)


def interval(condition: str, seed: int, *, both: bool = True) -> tuple[float, float]:
    """The bootstrap interval of a condition; without `both`, the builds alone are not resampled."""
    record, rng = MINE.repeated_builds(), np.random.default_rng(seed)
    us, alone = record[condition]["us"], record["alone"]["us"]
    drawn = np.median(rng.choice(us, (3000, len(us))), axis=1)
    others = np.median(rng.choice(alone, (3000, len(alone))), axis=1) if both else np.median(alone)
    low, high = np.quantile(drawn / others, [0.025, 0.975])
    return float(low), float(high)


def read(folder: Path, section: str) -> Any:
    """An answer of the submission."""
    return json.loads((folder / given.ANSWERS).read_text())[section]


def write(folder: Path, section: str, answer: Any) -> None:
    """Another answer in its place."""
    answers = json.loads((folder / given.ANSWERS).read_text())
    (folder / given.ANSWERS).write_text(json.dumps({**answers, section: answer}))


def changed(name: str, old: str, new: str) -> Callable[[Path], None]:
    """A file of the reference with the text `new` in place of `old`."""

    def make(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new))

    return make


class Mistake(NamedTuple):
    """What a learner does wrong, and what the task then gets."""

    make: Callable[[Path], None]
    task: str
    tier: str
    words: str
    hint: str


def every_width_even(folder: Path) -> None:
    """The rule that odd is wrong, without a look at the kernels."""
    write(folder, "widths", {name: width + width % 2 for name, width in MINE.widths.items()})


def tuned_for_eight(folder: Path) -> None:
    """A usual opt."""
    given.encoder_recipe(8, MINE.length).save(folder / "recipe.toml")


def by_the_files(folder: Path) -> None:
    """Nights judged by what went into the builds: another recipe must change tactics, and another file must have other weights."""
    answers = {}
    for name, night in MINE.nights().items():
        same_file = night.before[0].SerializeToString() == night.after[0].SerializeToString()
        answers[name] = {"differs": "tactics" if same_file else "weights", "new_tactics": 0}
    write(folder, "nights", answers)


def alone_is_exact(folder: Path) -> None:
    """Intervals of the conditions alone, relative to one number."""
    answer = read(folder, "builds")
    for condition, row in answer["conditions"].items():
        row["low"], row["high"] = interval(condition, seed=1, both=False)
    write(folder, "builds", answer)


_BLOCKS = {"old": "tactics * (budget // len(tactics))", "new": "[name for name in tactics for _ in range(15)]"}
_NO_RULE = {"old": "min(name for name, ms in typical.items() if ms <= limit)", "new": "min(typical, key=typical.get)"}
_DRIVER = {"old": '"device", "driver"', "new": '"device"'}
_LAST = {"old": "min(entry, other, key=lambda pair: (pair[1], pair[0]))", "new": "entry"}
_TIES, _ORDER = (
    "choices that both builds make",
    "the slower entry is kept; equal times, exchanged: the order of the caches decides",
)
MISTAKES = {
    "every width even": Mistake(every_width_even, "widths", "partial", "that remove no kernel is 1", "Not every odd width"),
    "tuned for eight": Mistake(tuned_for_eight, "recipe", "partial", "a larger opt batch needs more", "Halve the interval"),
    "nights by their files": Mistake(
        by_the_files, "rebuild", "none", "each kernel has its tactic of yesterday", "decide nothing"
    ),
    "runs in blocks": Mistake(changed("timing.py", **_BLOCKS), "timing", "partial", _TIES, "in each round"),
    "no rule for ties": Mistake(changed("timing.py", **_NO_RULE), "timing", "partial", _TIES, "depends on neither"),
    "builds alone do not vary": Mistake(alone_is_exact, "builds", "partial", "were built alone vary, too", "on both sides"),
    "no driver": Mistake(
        changed("timing_cache.py", **_DRIVER), "cache", "none", "the driver differs, and the keys are", "field"
    ),
    "the last entry wins": Mistake(changed("timing_cache.py", **_LAST), "cache", "partial", _ORDER, "which cache came first"),
}
