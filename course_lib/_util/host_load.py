"""How busy other programs kept the processors of a machine, measured without packages: a compiler's interpreter may have none."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

_STAT = Path("/proc/stat")


def others_share() -> Callable[[], float | None]:
    """Begin a measurement, and return a function that ends it.

    Returns:
        a function that gives the share of all processors' time that other processes used since then, from 0 to 1; None on a system
        that does not report it.

    Source: proc(5), the first line of /proc/stat.
    """
    before, own_before = _busy_and_all(), _own_seconds()

    def share() -> float | None:
        after = _busy_and_all()
        if before is None or after is None or after[1] <= before[1]:
            return None
        own_ticks = (_own_seconds() - own_before) * os.sysconf("SC_CLK_TCK")
        return min(1.0, max(0.0, (after[0] - before[0] - own_ticks) / (after[1] - before[1])))

    return share


def _busy_and_all() -> tuple[float, float] | None:
    """Ticks of all processors together: those in use, and all."""
    try:
        user, nice, system, idle, iowait, irq, softirq, steal = map(float, _STAT.read_text().split("\n", 1)[0].split()[1:9])
    except (OSError, ValueError):
        return None
    busy = user + nice + system + irq + softirq + steal
    return busy, busy + idle + iowait


def _own_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
