"""Submissions for lab 03: right in another way, or with the mistakes that learners make."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from course_lib.labs.lab03_tuning import given
from course_lib.recipe import Recipe
from tests.labs.submissions import Mistake, mistakes, table

MADE = table("lab03")
MINE = given.drawn("reference")


def another(folder: Path) -> None:
    """Widths in multiples of 8, intervals with other seeds, and other functions, over the reference's files."""
    trained, chosen = MINE.widths, read(folder, "widths")
    write(folder, "widths", {name: width if width == trained[name] else -(-width // 8) * 8 for name, width in chosen.items()})
    answer = read(folder, "builds")
    for condition, row in answer["conditions"].items():
        row["low"], row["high"] = interval(condition, seed=9)
    write(folder, "builds", answer)
    Recipe.load(folder / "recipe.toml").model_copy(update={"optimization_level": 5}).save(folder / "recipe.toml")
    for name, text in MADE["another"].items():
        (folder / name).write_text(text)


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


MISTAKES = {
    "every width even": Mistake(every_width_even, "widths", "partial", "that remove no kernel is 1", "Not every odd width"),
    "tuned for eight": Mistake(tuned_for_eight, "recipe", "partial", "a larger opt batch needs more", "Halve the interval"),
    "nights by their files": Mistake(
        by_the_files, "rebuild", "none", "each kernel has its tactic of yesterday", "decide nothing"
    ),
    "builds alone do not vary": Mistake(alone_is_exact, "builds", "partial", "were built alone vary, too", "on both sides"),
    **mistakes(MADE["mistakes"]),
}
