"""The figures of lab 12: the faults that a server survived, and the effect of a batching window."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from course_lib import style
from course_lib.labs.framework.examination import Examiner
from course_lib.labs.lab12_serving.judge.findings import Finding
from course_lib.labs.lab12_serving.judge.load_test import Sources
from course_lib.labs.lab12_serving.judge.speed import Load, beside
from course_lib.labs.lab12_serving.sandboxed.supervisor import BURST

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LONGEST = 92  # characters of a line of the table
_WINDOW = re.compile(r"^WINDOW_S *= *[^\s#]+", re.MULTILINE)


def survival(findings: Sequence[Finding]) -> Figure:
    """Draw one row for each scene: green if the server survived, otherwise with the problem."""
    drawn = style.figure(8.5, 0.5 + 0.27 * len(findings))
    axes = drawn.add_subplot()
    for row, found in enumerate(findings):
        color = style.COLORS[2] if found.survived else style.COLORS[1]
        axes.scatter(0.02, row, s=70, color=color, marker="o" if found.survived else "X")
        axes.text(0.05, row, found.scene, va="center", fontweight="bold")
        said = str(found).partition(": ")[2]
        axes.text(0.24, row, said if len(said) <= _LONGEST else f"{said[: _LONGEST - 3]}...", va="center", color=color)
    axes.set(xlim=(0, 1), ylim=(len(findings) - 0.5, -0.5), xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    wrong, survived = sum(found.wrong for found in findings), sum(found.survived for found in findings)
    drawn.suptitle(
        f"{survived} of {len(findings)} faults survived, {wrong} wrong answers",
        fontsize=10,
        fontweight="bold",
        x=0.01,
        ha="left",
    )
    return drawn


def try_windows(yours: Sources, windows_ms: Sequence[float], *, measure_s: float = 10.0) -> dict[float, Load]:
    """The server with other values of its ``WINDOW_S``, side by side in one session.

    Raises:
        ValueError: server.py has no line ``WINDOW_S = ...``.
        EngineError: the server does not start or does not answer.
    """
    if not _WINDOW.search(yours["server.py"]):
        raise ValueError("server.py has no line WINDOW_S = ... to try other values of")
    servers = {
        f"{window:g}": {**yours, "server.py": _WINDOW.sub(f"WINDOW_S = {window / 1e3}", yours["server.py"])}
        for window in windows_ms
    }
    taken = beside(servers, Examiner(measure_s=measure_s))
    return {window: _only(taken, f"{window:g}") for window in windows_ms}


def windows(tried: dict[float, Load]) -> Figure:
    """Draw the throughput under load, and the latency under load and of single requests, by window."""
    drawn = style.figure(8.5, 3)
    left, right = drawn.subplots(1, 2)
    places, loads = range(len(tried)), list(tried.values())
    rates = [1e3 * BURST / np.median(load.burst_ms["yours"]) for load in loads]
    left.plot(places, rates, "o-", color=style.color(0))
    left.set(ylabel="requests per second, 16 clients", ylim=(0, 1.15 * max(rates)))
    tails = [np.percentile(load.under_load_ms["yours"], 99) for load in loads]
    alone = [np.median(load.lone_ms["yours"]) for load in loads]
    right.plot(places, tails, "s--", color=style.color(1), label="99th percentile, 16 clients")
    right.plot(places, alone, "o-", color=style.color(2), label="median of a single request")
    right.set(ylabel="latency in ms", ylim=(0, None))
    right.legend(frameon=False)
    for axes in (left, right):
        axes.set(xlabel="batching window in ms", xticks=places, xticklabels=[f"{window:g}" for window in tried])
    longest = max(tried)
    drawn.suptitle(
        f"A window of {longest:g} ms adds {alone[-1] - alone[0]:.0f} ms to a single request and changes throughput by "
        f"{100 * (rates[-1] / rates[0] - 1):+.0f} %",
        fontsize=10,
        fontweight="bold",
    )
    return drawn


def _only(taken: Load, name: str) -> Load:
    return Load(
        {"yours": taken.burst_ms[name]}, {"yours": taken.under_load_ms[name]}, {"yours": taken.lone_ms[name]}, taken.wrong
    )
