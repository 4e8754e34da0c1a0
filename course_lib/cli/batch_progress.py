"""The progress of a batch: one line for each submission as it ends, with an estimate of the time that is left."""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress

from course_lib.cli.console import in_full

if TYPE_CHECKING:
    from course_lib.grading.batch.grade import Grade


class BatchProgress(AbstractContextManager["BatchProgress"]):
    """Progress of a batch: lines on standard error, and a bar below them on a terminal.

    Args:
        title: title of the lab.
        total: number of submissions.
        shown: False prints nothing.
    """

    def __init__(self, title: str, total: int, *, shown: bool = True) -> None:
        self._total, self._done, self._earlier = total, 0, 0
        self._started = self._last = time.monotonic()
        self._console = Console(stderr=True, quiet=not shown, highlight=False, emoji=False)
        bar = shown and sys.stderr.isatty()
        self._bar = Progress(transient=True, console=self._console, disable=not bar, redirect_stdout=bar, redirect_stderr=bar)
        self._task = self._bar.add_task(f"grading {title}", total=total)

    def __enter__(self) -> BatchProgress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()
        if self._earlier:
            self._console.print(f"{self._earlier} of {self._total} were graded before the interruption", soft_wrap=True)

    def ended(self, student: str, grade: Grade | None) -> None:
        """Called when a submission is done. Without a grade, an earlier interrupted batch had graded it."""
        self._done += 1
        self._bar.advance(self._task)
        if grade is None:
            self._earlier += 1
        else:
            remarks = "; ".join(filter(None, (grade.error, *grade.notes)))
            result = f"{grade.review.points}" + f" ({remarks})" * bool(remarks)
            in_full(self._console, escape(f"[{self._done}/{self._total}] {student}: {result}; {self._estimate()}"))

    def _estimate(self) -> str:
        """Seconds since the last line, and what is left at the pace so far."""
        now = time.monotonic()
        took, self._last = now - self._last, now
        pace, left = (now - self._started) / (self._done - self._earlier), self._total - self._done
        return f"{took:.0f} s" + (f", about {_spell(pace * left)} left" if left else "")


def _spell(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
