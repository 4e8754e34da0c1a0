"""Task 4: two caches are merged. Their entries have times that a wrong comparison confuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from course_lib.labs.lab03_tuning.judge.cache_builds import Network, Stage, Wrong, called, is_cache
from course_lib.labs.lab03_tuning.judge.cache_entries import drawn_ms, drawn_texts
from course_lib.labs.lab03_tuning.judge.differing import tactics


def merge(stage: Stage, drawn: Network) -> None:
    """Three caches, merged in several orders. Most keys are in two or three of them."""
    rng = drawn.rng
    caches: list[dict[str, Any]] = [{}, {}, {}]
    one, two, three = caches
    for times in (pair for several in (_far, _close, _as_text, _equal) for pair in (several(rng) for _ in range(12))):
        (key,), (first, second) = drawn_texts(rng, 1), rng.permutation(2)
        for cache, place, tactic in zip(caches, (first, second, rng.integers(2)), tactics(rng, 3), strict=True):
            cache[key] = [tactic, times[place]]
        if rng.random() < 0.4:
            del caches[rng.integers(3)][key]

    def merged(first: Any, second: Any) -> dict[str, Any]:
        found = called(stage, "merge", first, second)
        if not is_cache(found):
            raise Wrong("merge did not return a cache", "A cache is a dictionary from key to (tactic, ms).")
        return dict(found)

    both = merged(one, two)
    if missing := [key for key in {**one, **two} if key not in both]:
        raise Wrong(f"merge lost {len(missing)} of {len({**one, **two})} keys", "A key that only one cache has must be kept.")
    if both != merged(two, one):
        raise Wrong(
            "merge(a, b) and merge(b, a) differ",
            "Both caches may have a key, and even the same ms with two tactics. The rule must not ask which cache came first.",
        )
    wanted = right_merge(one, two)
    if wrong := next((key for key in wanted if both[key] != wanted[key]), None):
        raise Wrong(
            f"Of two entries for a key, merge kept another one than requirement 6 says: {difference_from_kept(both[wrong], wanted[wrong])}",
            "Compare ms first, and then the names.",
        )
    if more := [key for key in both if key not in wanted]:
        raise Wrong(f"merge added {len(more)} keys that no cache has", "A key is kept as it is.")
    if merged(both, three) != merged(one, merged(two, three)):
        raise Wrong(
            "The result for three caches depends on which two are merged first",
            "Keep one whole entry, and change nothing in it.",
        )


def right_merge(one: Mapping[str, Any], two: Mapping[str, Any]) -> dict[str, Any]:
    """All entries of two caches. Of two entries for a key, the one with the smaller ms, then the first tactic in alphabetical order."""
    both = [(key, entry) for cache in (one, two) for key, entry in cache.items()]
    found: dict[str, Any] = {}
    for key, entry in both:
        if key not in found or (entry[1], entry[0]) < (found[key][1], found[key][0]):
            found[key] = entry
    return found


def difference_from_kept(found: Sequence[Any], wanted: Sequence[Any]) -> str:
    """How an entry differs from the one that had to be kept. The beginnings of the tactics' names may be long and equal."""
    if found[1] != wanted[1]:
        return f"its ms is {found[1]} instead of {wanted[1]}"
    return "ms is equal, and the tactic is not the first one in alphabetical order"


def _far(rng: np.random.Generator) -> tuple[float, float]:
    return drawn_ms(rng), drawn_ms(rng)


def _close(rng: np.random.Generator) -> tuple[float, float]:
    """Two times that differ in their last digit."""
    digits = int(rng.integers(2, 16))
    number, exponent = int(rng.integers(10 ** (digits - 1), 10**digits)), int(rng.integers(-5, 1)) - digits
    return float(f"{number}e{exponent}"), float(f"{number + 1}e{exponent}")


def _as_text(rng: np.random.Generator) -> tuple[float, float]:
    """Two times whose order is another one for their texts, such as 9.5 and 10.5."""
    power = float(rng.choice((1e-5, 1, 10)))
    return power * float(rng.uniform(2, 9.9)), power * float(rng.uniform(10.1, 19))


def _equal(rng: np.random.Generator) -> tuple[float, float]:
    return (drawn_ms(rng),) * 2
