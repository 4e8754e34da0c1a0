"""Progress of long work: each step is printed when it begins, with an estimated time; a terminal also shows a bar."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress


@contextmanager
def step_progress(*, shown: bool = True) -> Iterator[Callable[[str, float], None]]:
    """Gives the function that begins a step, by its name and its estimated seconds; it ends the step before.

    Steps are named on standard error: with a bar on a terminal, otherwise one plain line per step.
    """
    if not shown:
        yield lambda name, about_s: None
    elif not sys.stderr.isatty():
        yield lambda name, about_s: print(f"{name} (about {about_s:.0f} s)", file=sys.stderr, flush=True)
    else:
        with _progress() as progress:

            def begin(name: str, about_s: float) -> None:
                for task in progress.task_ids:
                    progress.remove_task(task)
                progress.add_task(label(name), total=about_s)

            yield begin


def label(name: str) -> str:
    """The name of a step before its colon, for a bar."""
    return name.partition(":")[0]


def _progress() -> Progress:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn, TextColumn
    from rich.progress_bar import ProgressBar

    class Elapsed(ProgressColumn):
        """A bar that fills with the elapsed time, because the work itself does not report progress. A late step has a moving bar."""

        def render(self, task: Any) -> ProgressBar:
            return ProgressBar(total=task.total, completed=task.elapsed, pulse=task.elapsed >= task.total, width=20)

    seconds = TextColumn("{task.elapsed:.0f} s of about {task.total:.0f} s")
    return Progress(TextColumn("{task.description}"), Elapsed(), seconds, transient=True, console=Console(stderr=True))
