"""The progress of a batch: one line for each submission as it ends, with an estimate of the time that is left."""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

    from course_lib.grading.batch.grade import Grade


class BatchProgress(AbstractContextManager["BatchProgress"]):
    """Progress of a batch: lines on standard error, and a bar below them on a terminal.

    Args:
        title: title of the lab.
        total: number of submissions.
        shown: False prints nothing.
    """

    def __init__(self, title: str, total: int, *, shown: bool = True) -> None:
        self._title, self._total, self._shown = title, total, shown
        self._done = self._earlier = 0
        self._started = self._last = time.monotonic()
        self._bar: Progress | None = None

    def __enter__(self) -> BatchProgress:
        if self._shown and sys.stderr.isatty():
            self._bar = _bar()
            self._bar.add_task(f"grading {self._title}", total=self._total)
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()
        if self._earlier and self._shown:
            print(f"{self._earlier} of {self._total} were graded before the interruption", file=sys.stderr, flush=True)

    def ended(self, student: str, grade: Grade | None) -> None:
        """Called when a submission is done. Without a grade, an earlier interrupted batch had graded it."""
        self._done += 1
        if grade is None:
            self._earlier += 1
        if self._bar:
            self._bar.advance(self._bar.task_ids[0])
        if self._shown and grade:
            self._print(f"[{self._done}/{self._total}] {student}: {_told(grade)}; {self._estimate()}")

    def _estimate(self) -> str:
        """Seconds since the last line, and what is left at the pace so far."""
        now = time.monotonic()
        took, self._last = now - self._last, now
        pace, left = (now - self._started) / (self._done - self._earlier), self._total - self._done
        return f"{took:.0f} s" + (f", about {_spell(pace * left)} left" if left else "")

    def _print(self, line: str) -> None:
        if self._bar:
            from rich.markup import escape

            from course_lib.cli.console import in_full

            in_full(self._bar.console, escape(line))
        else:
            print(line, file=sys.stderr, flush=True)


def _told(grade: Grade) -> str:
    points = grade.review.points
    told = f"{points.earned:g} of {points.maximum:g} points" + (f", {points.open:g} open" if points.open else "")
    remarks = "; ".join(filter(None, (grade.error, *grade.notes)))
    return f"{told} ({remarks})" if remarks else told


def _spell(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _bar() -> Progress:
    from rich.console import Console
    from rich.progress import Progress

    return Progress(transient=True, console=Console(stderr=True))
