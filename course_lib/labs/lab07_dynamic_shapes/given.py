"""What lab 07 gives: the traffic of a text service, recipes of boxes, and the latency of every shape.

The first profile of a recipe that accepts a batch takes it, padded to the profile's largest shape. Padding allows a CUDA graph, whose
shapes are fixed: one graph is captured for each profile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from course_lib._util.progress_bar import track
from course_lib.labs.framework import submission
from course_lib.recipe import Profile, Recipe

Box = tuple[int, int]  # texts, tokens
LARGEST: Box = (16, 128)  # the contract: 1 to 16 texts in a batch, 1 to 128 tokens in a text
MOST = 3  # profiles that the service has memory for
WIDTH = 32  # numbers in a token
FILE = "service.json"  # says whose service it is
GRID = tuple((b, s) for b in (1, 2, 4, 8, 12, 16) for s in (4, 16, 32, 64, 96, 128))
_WINDOW_S = 0.008  # the batcher waits that long for more texts, or until the batch is full
_SPREADS = (0.35, 0.5)  # of the logarithm of a length, of paragraphs and of queries


@dataclass(frozen=True)
class Habits:
    """How a service is used. Calm and burst take turns, each for an exponentially distributed time.

    Attributes:
        calm_per_s, burst_per_s: texts per second.
        calm_s, burst_s: mean durations.
        query, paragraph, paragraphs: median tokens of two kinds of texts, whose lengths are log-normal; share of the second.
    """

    calm_per_s: float
    burst_per_s: float
    calm_s: float
    burst_s: float
    query: float
    paragraph: float
    paragraphs: float

    @classmethod
    def drawn(cls, rng: np.random.Generator) -> Habits:
        """Any service."""

        def between(low: float, high: float) -> float:
            return float(np.exp(rng.uniform(np.log(low), np.log(high))))

        return cls(
            between(20, 90),
            between(400, 2000),
            between(1, 4),
            between(0.1, 0.5),
            between(6, 24),
            between(45, 105),
            between(0.02, 0.5),
        )


@dataclass(frozen=True)
class Traffic:
    """Batches in the order in which they were sent.

    Attributes:
        sent_s: time at which the batch was closed, in seconds from the start, ``(n,)``.
        batch: texts in it, 1 to 16, ``(n,)``.
        length: tokens of its longest text, 1 to 128, ``(n,)``; the other texts of the batch are padded to it.
    """

    sent_s: np.ndarray
    batch: np.ndarray
    length: np.ndarray

    def counts(self) -> np.ndarray:
        """Number of occurrences of each shape: ``counts[b - 1, s - 1]`` batches of b texts with s tokens, ``(16, 128)``."""
        counts = np.zeros(LARGEST, dtype=np.int64)
        np.add.at(counts, (self.batch - 1, self.length - 1), 1)
        return counts


def one_day(habits: Habits, rng: np.random.Generator, *, minutes: float = 4.0) -> Traffic:
    """A day of a service's traffic."""
    arrivals = _arrivals(habits, 60 * minutes, rng)
    long = rng.random(len(arrivals)) < habits.paragraphs
    median, spread = np.where(long, habits.paragraph, habits.query), np.where(long, *_SPREADS)
    lengths = np.clip(np.rint(median * np.exp(spread * rng.standard_normal(len(long)))), 1, LARGEST[1]).astype(np.int64)
    first, sent, batch, length = 0, [], [], []
    while first < len(arrivals):
        after = min(int(np.searchsorted(arrivals, arrivals[first] + _WINDOW_S, side="right")), first + LARGEST[0])
        full = after - first == LARGEST[0]
        sent.append(arrivals[after - 1] if full else arrivals[first] + _WINDOW_S)
        batch.append(after - first)
        length.append(lengths[first:after].max())
        first = after
    return Traffic(np.array(sent), np.array(batch), np.array(length))


def habits(learner: str) -> Habits:
    """Those of a learner's service."""
    return Habits.drawn(submission.rng(learner, "lab07"))


@cache
def yesterday(learner: str) -> Traffic:
    """The recorded traffic of a learner's service. The grader draws another day of the same service."""
    return one_day(habits(learner), submission.rng(learner, "lab07 yesterday"))


def _arrivals(habits: Habits, duration_s: float, rng: np.random.Generator) -> np.ndarray:
    """Times of single requests in seconds: a Poisson process whose rate jumps between calm and burst."""
    now, parts = 0.0, []
    while now < duration_s:
        for rate, mean_s in ((habits.calm_per_s, habits.calm_s), (habits.burst_per_s, habits.burst_s)):
            stretch = rng.exponential(mean_s)
            parts.append(now + np.sort(rng.uniform(0, stretch, rng.poisson(rate * stretch))))
            now += stretch
    times = np.concatenate(parts)
    return times[times < duration_s]


def profile(largest: Box, smallest: Box = (1, 1)) -> Profile:
    """A profile of both inputs that accepts batches from `smallest` to `largest` and is tuned for what it runs, `largest`."""
    low, high = ({"tokens": (*shape, WIDTH), "mask": shape} for shape in (smallest, largest))
    return Profile({name: {"min": low[name], "opt": high[name], "max": high[name]} for name in ("tokens", "mask")})


def recipe(*largest: Box) -> Recipe:
    """A recipe with one `profile` per box. The service tries them in this order."""
    return Recipe(profiles=tuple(profile(box) for box in largest))


def ranges(recipe: Recipe) -> list[tuple[Box, Box]]:
    """For each profile the smallest and the largest batch (texts, tokens) that it accepts."""
    both = [(found.min, found.max) for found in (profile.root["mask"] for profile in recipe.profiles)]
    return [((low[0], low[1]), (high[0], high[1])) for low, high in both]


def batch(rng: np.random.Generator, box: Box = LARGEST) -> dict[str, np.ndarray]:
    """Random texts of the full shape without padding; the latency of a box does not depend on the values."""
    return {"tokens": rng.random((*box, WIDTH), dtype=np.float32), "mask": np.ones(box, np.float32)}


def cut(feeds: Mapping[str, np.ndarray], box: Box) -> dict[str, np.ndarray]:
    """The first texts and tokens of both inputs."""
    return {name: np.ascontiguousarray(array[: box[0], : box[1]]) for name, array in feeds.items()}


def measured(time_ms: Callable[[Box], float], *, repeats: int = 3, progress: bool = False) -> np.ndarray:
    """Latency in milliseconds of every shape, ``(16, 128)``: the shapes of `GRID` are timed, and the others are interpolated.

    The fastest of `repeats` counts, because other load on the machine can only slow a call down.
    """
    # The first round warms up: a call of a new shape may allocate.
    rounds = [{box: time_ms(box) for box in GRID} for _ in track(range(1 + repeats), "timing shapes", shown=progress)]
    return interpolated({box: min(one[box] for one in rounds[1:]) for box in GRID})


def interpolated(known: Mapping[Box, float]) -> np.ndarray:
    """Bilinear between the points of a grid and constant beyond it, ``(16, 128)``."""
    batches, lengths = (sorted({box[axis] for box in known}) for axis in (0, 1))
    rows = [np.interp(np.arange(1, LARGEST[1] + 1), lengths, [known[b, s] for s in lengths]) for b in batches]
    columns = [np.interp(np.arange(1, LARGEST[0] + 1), batches, column) for column in np.array(rows).T]
    return np.array(columns).T
