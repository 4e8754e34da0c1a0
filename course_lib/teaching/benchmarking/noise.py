"""A disturbed machine on purpose, and a Python function as something that `compare` can time."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from course_lib.benchmark.comparison import Feeds
from course_lib.benchmark.statistics import Clock, timed_ms

_SPIN = """
import sys, time
after, seconds = map(float, sys.argv[1:])
time.sleep(after)
end = time.perf_counter() + seconds
while time.perf_counter() < end:
    pass
"""


@contextmanager
def one_core() -> Iterator[int | None]:
    """Keep the calling thread and its child processes on one core, and return the number of the core.

    None if the operating system has no such call (macOS); the thread then runs on any core.
    """
    if not hasattr(os, "sched_setaffinity"):
        yield None
        return
    allowed = os.sched_getaffinity(0)
    core = max(allowed)
    os.sched_setaffinity(0, {core})
    try:
        yield core
    finally:
        os.sched_setaffinity(0, allowed)


@contextmanager
def background_load(seconds: float, *, after: float = 0.0) -> Iterator[None]:
    """A child process that computes for some seconds; inside `one_core` it takes turns with the caller. It ends with the block.

    Args:
        seconds: longest time of the computation.
        after: seconds that it sleeps first.
    """
    child = subprocess.Popen([sys.executable, "-I", "-S", "-c", _SPIN, str(after), str(seconds)])
    try:
        yield
    finally:
        child.kill()
        child.wait()


@dataclass(frozen=True)
class Timed:
    """A subject made of a function of the feeds.

    Attributes:
        function: does the work. On the wall clock it must not return before its work is done.
        clock: the wall clock, or a `DeviceClock` for a function that enqueues work on a GPU.
    """

    function: Callable[[Feeds], object]
    clock: Clock = field(default_factory=lambda: timed_ms)

    def time_ms(self, feeds: Feeds) -> float:
        """The time of one call in milliseconds."""
        return self.clock(lambda: self.function(feeds))
