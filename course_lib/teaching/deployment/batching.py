"""A simulation of dynamic batching: when requests arrive, when they run together, when they are answered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from course_lib import style


@dataclass(frozen=True)
class Batched:
    """The result for each request; times in milliseconds from the same zero.

    Attributes:
        arrived_ms, started_ms, answered_ms: times of its arrival, and of the start and the end of its run.
        size: number of requests in its run.
    """

    arrived_ms: np.ndarray
    started_ms: np.ndarray
    answered_ms: np.ndarray
    size: np.ndarray

    @property
    def latency_ms(self) -> np.ndarray:
        """Time from arrival to answer for each request, in milliseconds, shape ``(n,)``."""
        return self.answered_ms - self.arrived_ms

    @property
    def mean_size(self) -> float:
        """Mean number of requests in a run, over the runs."""
        return len(self.size) / float(np.sum(1 / self.size))

    @property
    def per_second(self) -> float:
        """Requests answered per second, from the first arrival to the last answer."""
        return 1e3 * len(self.size) / float(self.answered_ms[-1] - self.arrived_ms[0])


def run_batched(arrived_ms: np.ndarray, run_ms: Callable[[int], float], *, most: int, window_ms: float = 0.0) -> Batched:
    """One engine that takes waiting requests together.

    A run begins when the engine is free and either `most` requests wait or the oldest has waited for the window. With a window
    of 0, a run takes all requests that wait when the engine becomes free.

    Args:
        arrived_ms: arrival time of each request, ascending, shape ``(n,)``.
        run_ms: time of a run with this number of requests. The function may also run them and return the measured time.
        most: largest batch.
        window_ms: longest time that a request waits for others to share its run.
    """
    count = len(arrived_ms)
    started, answered, size = np.zeros(count), np.zeros(count), np.zeros(count, dtype=int)
    first, free = 0, 0.0
    while first < count:
        patience = max(free, arrived_ms[first] + window_ms)
        last = min(first + most, int(np.searchsorted(arrived_ms, patience, side="right")))
        begin = max(free, arrived_ms[last - 1]) if last - first == most else patience
        free = begin + run_ms(last - first)
        started[first:last], answered[first:last], size[first:last] = begin, free, last - first
        first = last
    return Batched(np.asarray(arrived_ms, float), started, answered, size)


def draw_requests(ways: Mapping[str, Batched], title: str) -> style.Figure:
    """Each request is a line from its arrival to its answer: first it waits, then it runs, with the others of its batch.

    Args:
        ways: the same requests with several rules, one panel each.
        title: the takeaway.
    """
    figure, panels = style.subplots(0.8 + 1.4 * len(ways), len(ways), sharex=True, sharey=True, squeeze=False)
    for axes, (name, one) in zip(panels[:, 0], ways.items(), strict=True):
        rows = np.arange(len(one.size))
        runs = np.cumsum(np.diff(one.started_ms, prepend=-1.0) > 0)
        axes.hlines(rows, one.arrived_ms, one.started_ms, color="#999999", lw=1.2, label="waits")
        axes.hlines(rows, one.started_ms, one.answered_ms, color=style.color(0), lw=2, label="runs")
        takeaway = f"{name}: {runs[-1]} runs, slowest {one.latency_ms.max():.1f} ms"
        axes.set_title(takeaway, fontsize=9, weight="normal", loc="left")
        axes.set(ylabel="request", xlim=(0, None))
    panels[-1, 0].set_xlabel("time (ms)")
    panels[0, 0].legend(loc="upper right", frameon=False)  # requests come from there later and lower
    panels[0, 0].invert_yaxis()
    figure.suptitle(title)
    return figure


def draw_loads(ways: Mapping[str, Mapping[float, Batched]], title: str, *, limit_ms: float) -> style.Figure:
    """The 99th percentile of the latency, and the mean batch, over the requests that arrive per second.

    Args:
        ways: by name of the rule and by requests per second.
        title: the takeaway.
        limit_ms: the end of the upper panel; the percentile of a queue that grows without bound has no meaning.
    """
    figure, (above, below) = style.subplots(4.6, 2, 1, sharex=True, height_ratios=(2, 1))
    for index, (name, loads) in enumerate(ways.items()):
        rates = list(loads)
        slow = [float(np.percentile(one.latency_ms, 99)) for one in loads.values()]
        above.plot(rates, slow, "o-", ms=4, color=style.color(index), label=name)
        below.plot(rates, [one.mean_size for one in loads.values()], "o-", ms=4, color=style.color(index))
    above.set(ylabel="99th percentile of\nthe latency (ms)", ylim=(0, limit_ms))
    style.name_lines(above)
    below.set(ylabel="mean batch", xlabel="requests per second", ylim=(0, None))
    below.locator_params(axis="x", nbins=4)
    figure.suptitle(title)
    return figure
