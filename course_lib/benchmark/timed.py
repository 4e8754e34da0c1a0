"""A function as something that `compare` can time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from course_lib.benchmark.compare import Feeds
from course_lib.benchmark.tuner import timed_ms


@dataclass(frozen=True)
class Timed:
    """A subject made of a function of the feeds. The function must not return before its work is done."""

    function: Callable[[Feeds], object]

    def time_ms(self, feeds: Feeds) -> float:
        """One call on the wall clock, in milliseconds."""
        return timed_ms(lambda: self.function(feeds))
