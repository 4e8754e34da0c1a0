"""Traffic of a text service: single requests that come in bursts, most of them short, gathered into batches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

LARGEST = (16, 128)  # the contract: 1 to 16 texts in a batch, 1 to 128 tokens in a text
WINDOW_S = 0.008  # the batcher waits that long for more texts, or until the batch is full

# Calm and burst take turns; both last an exponentially distributed time.
CALM_PER_S, BURST_PER_S = 40.0, 900.0
CALM_S, BURST_S = 2.5, 0.25
# Nine in ten are queries and the rest paragraphs; lengths are log-normal, with their medians in tokens and their spreads.
QUERY, PARAGRAPH, PARAGRAPHS = (11, 0.5), (75, 0.35), 0.10


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

    def __len__(self) -> int:
        return len(self.batch)

    def counts(self) -> np.ndarray:
        """Number of occurrences of each shape: ``counts[b - 1, s - 1]`` batches of b texts with s tokens, ``(16, 128)``."""
        counts = np.zeros(LARGEST, dtype=np.int64)
        np.add.at(counts, (self.batch - 1, self.length - 1), 1)
        return counts


def one_day(seed: int | None, *, minutes: float = 4.0) -> Traffic:
    """A day of the service's traffic. The same seed gives the same traffic; None gives a random one."""
    rng = np.random.default_rng(seed)
    arrivals = _arrivals(60 * minutes, rng)
    lengths = _lengths(len(arrivals), rng)
    first, sent, batch, length = 0, [], [], []
    while first < len(arrivals):
        after = min(int(np.searchsorted(arrivals, arrivals[first] + WINDOW_S, side="right")), first + LARGEST[0])
        full = after - first == LARGEST[0]
        sent.append(arrivals[after - 1] if full else arrivals[first] + WINDOW_S)
        batch.append(after - first)
        length.append(lengths[first:after].max())
        first = after
    return Traffic(np.array(sent), np.array(batch), np.array(length))


def yesterday() -> Traffic:
    """The recorded traffic, the same for every learner. The grader draws another day."""
    return one_day(seed=5)


def _arrivals(duration_s: float, rng: np.random.Generator) -> np.ndarray:
    """Times of single requests in seconds: a Poisson process whose rate jumps between calm and burst."""
    now, parts = 0.0, []
    while now < duration_s:
        for rate, mean_s in ((CALM_PER_S, CALM_S), (BURST_PER_S, BURST_S)):
            stretch = rng.exponential(mean_s)
            parts.append(now + np.sort(rng.uniform(0, stretch, rng.poisson(rate * stretch))))
            now += stretch
    times = np.concatenate(parts)
    return times[times < duration_s]


def _lengths(n: int, rng: np.random.Generator) -> np.ndarray:
    long = rng.random(n) < PARAGRAPHS
    medians, spreads = (np.where(long, p, q) for p, q in zip(PARAGRAPH, QUERY, strict=True))
    return np.clip(np.rint(medians * np.exp(spreads * rng.standard_normal(n))), 1, LARGEST[1]).astype(np.int64)
