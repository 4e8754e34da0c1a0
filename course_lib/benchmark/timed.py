"""A function as something that `compare` can time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from course_lib.benchmark.compare import Feeds
from course_lib.benchmark.statistics import Clock, timed_ms


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
        """One call, in milliseconds."""
        return self.clock(lambda: self.function(feeds))
