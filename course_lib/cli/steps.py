"""Progress of long work: each step is printed when it begins, with an estimated time; a terminal also shows a bar."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_NEARLY = 0.98  # where the bar waits if a step takes longer than estimated


class Steps(AbstractContextManager["Steps"]):
    """Names the steps of long work on standard error: with a bar on a terminal, otherwise one plain line per step.

    Args:
        shown: False prints nothing.
    """

    def __init__(self, *, shown: bool = True) -> None:
        self._shown = shown
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Steps:
        if self._shown and sys.stderr.isatty():
            self._progress = _progress()
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress:
            self._progress.stop()

    def begin(self, name: str, about_s: float) -> None:
        """End the current step and begin the next one, with its estimated time in seconds."""
        if not self._shown:
            return
        if self._progress is None:
            print(f"{name} (about {about_s:.0f} s)", file=sys.stderr, flush=True)
            return
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task(name, total=about_s)


def _progress() -> Progress:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn, TextColumn, TimeElapsedColumn
    from rich.progress_bar import ProgressBar
    from rich.table import Column

    class Elapsed(ProgressColumn):
        """A bar that fills with the elapsed time, because the work itself does not report progress."""

        def render(self, task: Any) -> ProgressBar:
            return ProgressBar(total=task.total, completed=min(task.elapsed or 0.0, _NEARLY * task.total), width=20)

    out = Console(stderr=True)
    stage = TextColumn(
        "{task.description}", table_column=Column(no_wrap=True, overflow="ellipsis", max_width=max(out.width - 50, 20))
    )
    columns = (stage, Elapsed(), TimeElapsedColumn(), TextColumn("of about {task.total:.0f} s"))
    return Progress(*columns, transient=True, console=out)
