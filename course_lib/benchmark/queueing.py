"""Response times of requests that wait for an engine, which answers one at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from course_lib import style


@dataclass(frozen=True)
class Answers:
    """The result of a queue, with one entry for each frame.

    Attributes:
        latency_ms: time from a frame's arrival until its answer; NaN if it was lost.
        waiting: number of frames in the queue just after its arrival.
    """

    latency_ms: np.ndarray
    waiting: np.ndarray

    @property
    def lost_share(self) -> float:
        """Part of the frames that were dropped, 0 to 1."""
        return float(np.isnan(self.latency_ms).mean())

    @property
    def p99_ms(self) -> float:
        """Latency below which 99 % of the answered frames stay."""
        return float(np.nanpercentile(self.latency_ms, 99))

    @property
    def worst_ms(self) -> float:
        """Longest latency of an answered frame."""
        return float(np.nanmax(self.latency_ms))


def response_ms(service_ms: np.ndarray, between_ms: np.ndarray) -> np.ndarray:
    """Time from arrival to answer of each request, shape ``(n,)``, in milliseconds: the wait and the service.

    Args:
        service_ms: time that the engine works on each request, shape ``(n,)``.
        between_ms: time from the previous arrival to each arrival, shape ``(n,)``; the first value is not used.

    Raises:
        ValueError: the shapes differ.

    Source: Lindley (1952), The theory of queues with a single server: ``wait[i] = max(0, wait[i-1] + service[i-1] - between[i])``.
    """
    if service_ms.shape != between_ms.shape:
        raise ValueError(
            f"need a service time and an arrival for each request, got shapes {service_ms.shape} and {between_ms.shape}"
        )
    waits = np.zeros(len(service_ms))
    for index in range(1, len(waits)):
        waits[index] = max(0.0, waits[index - 1] + service_ms[index - 1] - between_ms[index])
    return waits + service_ms


def over_load(service_ms: np.ndarray, loads: Sequence[float], *, requests: int = 20_000) -> dict[float, np.ndarray]:
    """Response times in milliseconds for each load, with requests that arrive at random (a Poisson process).

    Args:
        service_ms: measured times of the engine, ``(n,)``; each request draws one of them.
        loads: shares of the time in which the engine works, each above 0 and below 1.
        requests: number of simulated requests for each load.

    Returns:
        ``(requests,)`` for each load.

    Raises:
        ValueError: a load of 1 or more: the queue would grow without bound.
    """
    if not all(0 < load < 1 for load in loads):
        raise ValueError(f"a load must be between 0 and 1, got {list(loads)}: at 1 or more the queue grows without bound")
    rng = np.random.default_rng(0)
    served = rng.choice(service_ms, requests)
    gaps = rng.exponential(served.mean(), requests)
    return {load: response_ms(served, gaps / load) for load in loads}


def draw_over_load(responses: Mapping[float, np.ndarray], alone_ms: float) -> style.Figure:
    """Median and 99th percentile of the response time over the load.

    Args:
        responses: result of `over_load`.
        alone_ms: median time of a single request.
    """
    figure = style.figure(3.2)
    axes = figure.add_subplot()
    loads = [100 * load for load in responses]
    for index, percent in enumerate((50, 99)):
        values = [float(np.percentile(times, percent)) for times in responses.values()]
        axes.plot(loads, values, "o-", color=style.color(index), label="median" if percent == 50 else "99th percentile")
    axes.axhline(alone_ms, color="#777777", lw=1, ls="--", label="a call alone")
    axes.set_ylim(bottom=0)
    axes.set(xlabel="load: share of the time that the engine works (%)", ylabel="from arrival to answer (ms)")
    style.name_lines(axes)
    axes.set_title(
        f"At {loads[-1]:.0f} % load one request in 100 takes more than {values[-1] / alone_ms:.0f} times the time of a call"
    )
    return figure
