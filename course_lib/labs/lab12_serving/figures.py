"""The figure of lab 12: the effect of a batching window."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from course_lib import style
from course_lib.labs.framework.examination import Examiner
from course_lib.labs.lab12_serving.checks import Load, Sources, measured
from course_lib.labs.lab12_serving.sandboxed.stage import BURST

_WINDOW = re.compile(r"^WINDOW_S *= *[^\s#]+", re.MULTILINE)


def try_windows(yours: Sources, windows_ms: Sequence[float], *, measure_s: float = 6.0) -> dict[float, Load]:
    """The server with other values of its ``WINDOW_S``, one after the other.

    Raises:
        ValueError: server.py has no line ``WINDOW_S = ...``.
        EngineError: the server does not start or does not answer.
    """
    if not _WINDOW.search(yours["server.py"]):
        raise ValueError("server.py has no line WINDOW_S = ... to try other values of")

    def tried(window_ms: float) -> Load:
        server = {**yours, "server.py": _WINDOW.sub(f"WINDOW_S = {window_ms / 1e3}", yours["server.py"])}
        return measured(server, Examiner(measure_s=measure_s))

    return {window_ms: tried(window_ms) for window_ms in windows_ms}


def windows(tried: dict[float, Load]) -> style.Figure:
    """Draw the throughput under load and the latency of single requests, by window."""
    drawn = style.figure(4.4)
    above, below = drawn.subplots(2, 1, sharex=True)
    places, loads = range(len(tried)), list(tried.values())
    rates = [1e3 * BURST / np.median(load.burst_ms["yours"]) for load in loads]
    above.plot(places, rates, "o-", color=style.color(0))
    above.set(ylabel="requests per second,\n16 clients", ylim=(0, 1.15 * max(rates)))
    alone = [np.median(load.lone_ms["yours"]) for load in loads]
    below.plot(places, alone, "o-", color=style.color(0))
    below.set(ylabel="median latency of a\nsingle request (ms)", ylim=(0, None), xlabel="batching window (ms)")
    below.set_xticks(places, [f"{window:g}" for window in tried])
    longest = max(tried)
    drawn.suptitle(
        f"A window of {longest:g} ms adds {alone[-1] - alone[0]:.0f} ms to a single request and changes throughput by "
        f"{100 * (rates[-1] / rates[0] - 1):+.0f} %"
    )
    return drawn
