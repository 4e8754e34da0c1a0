"""Progress of a build: the reports of a builder."""

from __future__ import annotations

import time
from collections.abc import Callable

Report = Callable[[float, str], None]  # share done from 0 to 1, and the name of what is being done


def at_most_every(seconds: float, report: Report) -> Report:
    """The same reports, thinned out: a builder takes hundreds of steps in a second. The last one always passes."""
    last = -seconds

    def thinned(share: float, phase: str) -> None:
        nonlocal last
        now = time.monotonic()
        if share >= 1 or now - last >= seconds:
            last = now
            report(share, phase)

    return thinned
