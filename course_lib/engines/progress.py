"""Progress of a build: the reports of a builder, and the bar that shows them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from course_lib._util.progress_bar import NotebookBar, in_notebook

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


@contextlib.contextmanager
def bar(title: str) -> Iterator[Report]:
    """A progress bar on standard error, or in a notebook; it vanishes when the work is done."""
    if in_notebook():
        drawn = NotebookBar(title)
        try:
            yield lambda share, phase: drawn.show(share, phase[:40])
        finally:
            drawn.close()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[phase]}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(title, total=1.0, phase="")
        yield lambda share, phase: shown.update(task, completed=share, phase=phase[:40])
