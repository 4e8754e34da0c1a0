"""The progress bar of long work: on standard error, or in a notebook; it vanishes when the work is done."""

from __future__ import annotations

import html
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from typing import Any, TypeVar

_Step = TypeVar("_Step")
_FILL = "@keyframes course-fill{from{width:0}}@keyframes course-late{50%{opacity:.3}}"
_UPDATE_S = 0.2  # at least this long between two updates in a notebook


def track(steps: Iterable[_Step], doing: str, *, total: int | None = None, shown: bool = True) -> Iterator[_Step]:
    """The same steps, with a progress bar.

    Args:
        total: number of steps, if `steps` has no length.
    """
    if not shown:
        yield from steps
        return
    count = total if total is not None else len(steps) if isinstance(steps, Sized) else None
    with bar(doing) as show:
        show(0.0 if count else None, "")
        for done, step in enumerate(steps, 1):
            yield step
            show(done / count if count else None, "")


@contextmanager
def bar(doing: str) -> Iterator[Callable[[float | None, str], None]]:
    """A bar on standard error, or in a notebook. It takes the share done, None if the end is unknown, and what is being done."""
    if in_notebook():
        drawn = NotebookBar(doing)
        try:
            yield lambda share, phase: drawn.show(share, phase[:40])
        finally:
            drawn.close()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[phase]}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(doing, total=None, phase="")

        def show(share: float | None, phase: str) -> None:
            shown.update(task, total=None if share is None else 1.0, completed=share or 0.0, phase=phase[:40])

        yield show


def in_notebook() -> bool:
    """Whether this is a Jupyter kernel."""
    if "IPython" not in sys.modules:
        return False
    from IPython import get_ipython

    return hasattr(get_ipython(), "kernel")


class NotebookBar:
    """A bar in a cell's output. It has no thread and no widget: only `show` draws, and never more often than every 0.2 s.

    Rich draws in a notebook through an output widget that two threads write. Each update is then several messages that the
    front end answers, and while a busy machine answers late, `nbconvert` waits.
    """

    def __init__(self, doing: str) -> None:
        self._doing = doing
        self._handle: Any = None
        self._drawn = -_UPDATE_S

    def show(self, share: float | None, detail: str = "") -> None:
        """Draw the bar at `share`, 0 to 1, or without a share if the end is unknown."""
        now = time.monotonic()
        if now - self._drawn < _UPDATE_S:
            return
        self._drawn = now
        text = f"{self._doing} {'' if share is None else f'{share:.0%}'} {detail}".rstrip()
        value = "" if share is None else f' value="{share:.3f}"'
        self._draw({"text/plain": text, "text/html": f"<progress{value}></progress> {html.escape(text)}"})

    def begin(self, stage: str, about_s: float) -> None:
        """Draw the stage of work that reports no share. The page itself fills the bar in the usual seconds, so one message is enough.

        After them the bar blinks.
        """
        text = f"{stage} (about {about_s:.0f} s)"
        animation = f"course-fill {about_s:g}s linear,course-late 1s {about_s:g}s infinite"
        fill = f"height:100%;width:98%;background:currentColor;animation:{animation}"
        frame = "display:inline-block;vertical-align:middle;width:10em;height:.6em;border:1px solid"
        drawn = f'<style>{_FILL}</style><div style="{frame}"><div style="{fill}"></div></div> {html.escape(text)}'
        self._draw({"text/plain": text, "text/html": drawn})

    def close(self) -> None:
        """Leave the output empty."""
        if self._handle is not None:
            self._draw({"text/plain": "", "text/html": ""})

    def _draw(self, data: dict[str, str]) -> None:
        from IPython.display import display

        if self._handle is None:
            self._handle = display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)


@contextmanager
def notebook_stages() -> Iterator[Callable[[str, float], None]]:
    """Takes the name and the usual seconds of each stage as it begins, and shows them on one line of a notebook; nothing elsewhere."""
    bar = NotebookBar("")
    try:
        yield bar.begin if in_notebook() else lambda stage, about_s: None
    finally:
        bar.close()
