"""How the service of lab 07 runs a batch: the first profile that accepts its shape takes it, padded to the profile's largest shape.

Padding allows a CUDA graph, whose shapes are fixed: one graph is captured for each profile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from course_lib.labs.framework.answers_timed import Answering
from course_lib.labs.framework.examination import TimedWorker
from course_lib.labs.lab07_dynamic_shapes.traffic import LARGEST
from course_lib.recipe import Profile, Recipe, ShapeRange

WIDTH = 32  # numbers in a token
Box = tuple[int, int]  # the shape that a profile runs: texts, tokens
Calls = tuple[Mapping[str, np.ndarray], Mapping[str, np.ndarray]]


def profile(largest: Box, smallest: Box = (1, 1)) -> Profile:
    """A profile of both inputs that accepts batches from `smallest` to `largest` and is tuned for what it runs, `largest`."""
    low, high = ({"tokens": (*shape, WIDTH), "mask": shape} for shape in (smallest, largest))
    return Profile({name: {"min": low[name], "opt": high[name], "max": high[name]} for name in ("tokens", "mask")})


def recipe(*largest: Box) -> Recipe:
    """A recipe with one `profile` per box. The service tries them in this order."""
    return Recipe(profiles=tuple(profile(box) for box in largest))


def boxes(recipe: Recipe) -> list[Box]:
    """The shape that each profile runs; (0, 0) if its two inputs have no shape in common."""
    return [_box(profile) for profile in recipe.profiles]


def differing(recipe: Recipe) -> str:
    """Where the inputs of a profile have other N or S, in words, or ""."""
    for number, one in enumerate(recipe.profiles, 1):
        tokens, mask = (one.root.get(name) for name in ("tokens", "mask"))
        if tokens is None or mask is None:  # the builder names the input that is missing
            continue
        for bound in ("min", "opt", "max"):
            first, second = getattr(tokens, bound), getattr(mask, bound)
            if first[:2] != second[:2]:
                return f"{bound} of profile {number} is {first} for tokens and {second} for mask"
    return ""


def routes(recipe: Recipe) -> np.ndarray:
    """The profile of each shape: ``routes[b - 1, s - 1]`` is its index, -1 if no profile accepts the shape; ``(16, 128)``."""
    taken = np.full(LARGEST, -1)
    for index, one in reversed(list(enumerate(recipe.profiles))):
        low, high = _bounds(one)
        taken[max(low[0] - 1, 0) : high[0], max(low[1] - 1, 0) : high[1]] = index
    return taken


@dataclass(frozen=True)
class Bill:
    """The result of routing some traffic with a recipe.

    Attributes:
        shares: share of the batches that each profile takes.
        rejected: the part that no profile takes.
        padding: share of padding among all computed tokens.
    """

    shares: tuple[float, ...]
    rejected: float
    padding: float


def bill(recipe: Recipe, counts: np.ndarray) -> Bill:
    """Route traffic: `counts` is the number of batches of each shape, ``(16, 128)``, as in `Traffic`."""
    taken, total = routes(recipe), counts.sum()
    shares = tuple(float(counts[taken == i].sum() / total) for i in range(len(recipe.profiles)))
    texts, tokens = np.indices(LARGEST) + 1
    accepted = np.where(taken >= 0, counts, 0)
    computed = sum(float(counts[taken == i].sum()) * b * s for i, (b, s) in enumerate(boxes(recipe)))
    useful = float((accepted * texts * tokens).sum())
    return Bill(shares, float(counts[taken < 0].sum() / total), 1 - useful / computed if computed else 0.0)


@dataclass(frozen=True)
class Service:
    """An engine that serves traffic. ``time_ms`` is what a batch costs on average: the time of each box, weighted by its share."""

    engine: TimedWorker | Answering
    boxes: Sequence[Box]
    shares: Sequence[float]
    answered: dict[Box, Calls] = field(
        default_factory=dict, repr=False
    )  # of each box's last call, if the engine is `Answering`

    def time_ms(self, feeds: Mapping[str, np.ndarray]) -> float:
        """Mean cost of a batch, from one call of each box that is used; `feeds` are cut to its shape."""
        used = [(box, share) for box, share in zip(self.boxes, self.shares, strict=True) if share > 0]
        spent = 0.0
        for box, share in used:
            inputs = cut(feeds, box)
            spent += share * self.engine.time_ms(inputs)
            if isinstance(self.engine, Answering):
                self.answered[box] = inputs, self.engine.answered
        return spent


def cut(feeds: Mapping[str, np.ndarray], box: Box) -> dict[str, np.ndarray]:
    """The first texts and tokens of both inputs."""
    return {name: np.ascontiguousarray(array[: box[0], : box[1]]) for name, array in feeds.items()}


def batch(rng: np.random.Generator, box: Box = LARGEST) -> dict[str, np.ndarray]:
    """Random texts of the full shape without padding; the latency of a box does not depend on the values."""
    return {"tokens": rng.random((*box, WIDTH), dtype=np.float32), "mask": np.ones(box, np.float32)}


def _bounds(profile: Profile) -> tuple[Box, Box]:
    """Smallest and largest shape that both inputs accept."""
    ranges = [profile.root.get("tokens"), profile.root.get("mask")]
    if any(one is None or len(one.min) < 2 for one in ranges):
        return (1, 1), (0, 0)
    known: list[ShapeRange] = [one for one in ranges if one is not None]
    low = tuple(max(one.min[axis] for one in known) for axis in (0, 1))
    high = tuple(min(one.max[axis] for one in known) for axis in (0, 1))
    fits = all(least <= most for least, most in zip(low, high, strict=True))
    return ((low[0], low[1]), (high[0], high[1])) if fits else ((1, 1), (0, 0))


def _box(profile: Profile) -> Box:
    return _bounds(profile)[1]
