"""Several subjects measured against a baseline in one session, interleaved in shuffled order."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from course_lib import style
from course_lib.benchmark.statistics import Interval, Measurement, speedup

_FEWEST_ROUNDS = 10  # an interval of fewer says nothing
Feeds = Mapping[str, np.ndarray]


class Subject(Protocol):
    """What can be compared: an engine, or a worker that holds one."""

    def time_ms(self, feeds: Feeds) -> float:
        """Run once; the time in milliseconds."""


@dataclass(frozen=True)
class Comparison:
    """The result of `compare`. Round i timed every subject once on the same inputs, in a random order.

    Attributes:
        baseline: name of the subject to which the ratios refer.
        measurements: latencies by subject, all of the same length, paired by index.
        speedups: for every other subject, the interval of ``baseline / subject``.
        seconds: duration of the measurement.
        stopped: ``"precise"`` if every interval was narrow enough, ``"time"`` if the time limit came first.
        clock: how engines on a GPU were timed, such as "replays of a CUDA graph"; "" for the host's clock.
    """

    baseline: str
    measurements: Mapping[str, Measurement]
    speedups: Mapping[str, Interval]
    seconds: float
    stopped: str
    clock: str = ""

    def latencies(self) -> dict[str, np.ndarray]:
        """Latencies in milliseconds by subject, paired by index."""
        return {name: measured.latencies_ms for name, measured in self.measurements.items()}

    def ratio(self, slower: str, faster: str, *, seed: int | None = None) -> Interval:
        """Interval of the paired ratio of any two subjects, ``slower / faster``."""
        return speedup(self.measurements[slower].latencies_ms, self.measurements[faster].latencies_ms, seed=seed)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values without the single latencies."""
        return {
            "baseline": self.baseline,
            "rounds": len(self.measurements[self.baseline].latencies_ms),
            "seconds": round(self.seconds, 2),
            "stopped": self.stopped,
            "clock": self.clock,
            "median_ms": {name: m.median_ms for name, m in self.measurements.items()},
            "p99_ms": {name: m.percentile_ms(99) for name, m in self.measurements.items()},
            "speedup": {n: {"median": s.median, "low": s.low, "high": s.high} for n, s in self.speedups.items()},
        }

    def plot(self, about: str | None = None) -> style.Figure:
        """One row per subject: every latency as a faint dot, the median as a bar, and the speedup over the baseline.

        The title states the result of the subject `about`, by default of the fastest. It names no winner among those whose intervals
        overlap the interval of the fastest.
        """
        names = list(self.measurements)
        fastest = max(self.speedups, key=lambda name: self.speedups[name].median, default="")
        tied = [name for name, one in self.speedups.items() if one.high >= self.speedups[fastest].low]
        named = [about] if about else tied
        figure = style.figure(0.9 + 0.6 * len(names))
        axes = figure.add_subplot()
        spread = np.random.default_rng(0)
        everything = np.concatenate([m.latencies_ms for m in self.measurements.values()])
        # the slowest percent (a busy machine) would squeeze everything else to the left edge
        end = 1.05 * float(np.percentile(everything, 99))
        for row, name in enumerate(reversed(names)):
            values = self.measurements[name].latencies_ms
            color = style.color(name in named)
            axes.plot(values, row + spread.uniform(-0.25, 0.25, len(values)), ".", ms=2, alpha=0.25, color=color)
            median = self.measurements[name].median_ms
            axes.plot([median, median], [row - 0.34, row + 0.34], lw=2.5, color=color)
            label = f"{median:.2f} ms"
            if name in self.speedups:
                label += f", {self.speedups[name]}"
            axes.annotate(label, (median, row + 0.36), ha="left" if median < end / 2 else "right", va="bottom", fontsize=8)
        axes.set_yticks(range(len(names)), reversed(names))
        axes.set_ylim(-0.5, len(names) - 0.2)
        axes.set_xlim(0, end)
        axes.set_xlabel("latency of one call (ms)")
        if others := [name for name in named if name != fastest and not about]:
            axes.set_title(f"{fastest} is not clearly faster than {', '.join([*others[:-2], ' and '.join(others[-2:])])}")
        elif named:
            axes.set_title(f"{named[0]}: {self.speedups[named[0]]} the speed of {self.baseline}")
        else:
            median = self.measurements[self.baseline].median_ms
            axes.set_title(f"{self.baseline}: half of the calls take less than {median:.2f} ms")
        return figure


def compare(
    subjects: Mapping[str, Subject],
    feeds: Callable[[], Feeds],
    *,
    baseline: str,
    half_width: float = 0.03,
    time_limit_s: float = 20.0,
    warmup: int = 5,
    min_rounds: int = 100,
    settled: Callable[[Mapping[str, np.ndarray]], bool] | None = None,
    after_round: Callable[[Feeds], None] | None = None,
) -> Comparison:
    """Measure until every interval is narrow enough or the time is up.

    Each round draws fresh inputs and times every subject once, in random order. Drift of the machine, caches and other
    programs then affect all subjects equally. With a fixed order, each subject would be affected by its predecessor.

    Args:
        subjects: the subjects to time, by name.
        feeds: function that makes the inputs of one round.
        baseline: the subject to which the ratios refer.
        half_width: stop when every interval is within plus or minus this share of its median.
        time_limit_s: stop after this many seconds in any case, after at least 10 rounds.
        warmup: number of rounds that run first and are not counted.
        min_rounds: number of rounds before the first look at intervals, at least 10. With 30 rounds, a "95 %" interval holds the
            true value in about 89 of 100 cases of independent noise. With 100 rounds it is 93 to 95 cases, or 92 if neighboring
            rounds correlate by half (simulated, see the tests and lecture 11).
        settled: a stopping rule on the latencies by name that replaces `half_width`.
        after_round: called with the inputs of each round, including warm-up, after every subject has run. It is not timed and
            can check the answers.

    Raises:
        ValueError: fewer than 10 rounds are requested, or no subject has the baseline's name.
    """
    if baseline not in subjects or min_rounds < _FEWEST_ROUNDS:
        raise ValueError(f"need a baseline among {sorted(subjects)} and min_rounds >= 10, got {baseline!r} and {min_rounds}")
    names = list(subjects)
    order = random.SystemRandom()
    started = time.monotonic()
    rounds: list[list[float]] = []
    next_look, stopped = min_rounds, ""
    for index in range(-warmup, 10**9):
        inputs, row = feeds(), [0.0] * len(names)
        for place in order.sample(range(len(names)), len(names)):
            row[place] = subjects[names[place]].time_ms(inputs)
        if after_round:
            after_round(inputs)
        if index < 0:
            continue
        rounds.append(row)
        out_of_time = time.monotonic() - started > time_limit_s
        if len(rounds) < _FEWEST_ROUNDS or not (out_of_time or len(rounds) >= next_look):
            continue
        next_look = int(1.3 * len(rounds))  # looking costs a bootstrap: look rarely
        latencies = dict(zip(names, np.array(rounds).T, strict=True))
        # a fixed seed, so that the intervals can be computed again from the latencies
        speedups = {name: speedup(latencies[baseline], latencies[name], seed=0) for name in names if name != baseline}
        narrow = settled(latencies) if settled else all(s.half_width <= half_width for s in speedups.values())
        if narrow or out_of_time:
            stopped = "precise" if narrow else "time"
            break
    return Comparison(
        baseline=baseline,
        measurements={name: Measurement(values) for name, values in latencies.items()},
        speedups=speedups,
        seconds=time.monotonic() - started,
        stopped=stopped,
    )
