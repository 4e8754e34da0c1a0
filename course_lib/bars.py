"""The progress bar of long work: on standard error, or in a notebook; it vanishes when the work is done."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

_Step = TypeVar("_Step")


def track(steps: Iterable[_Step], doing: str, *, total: int | None = None, shown: bool = True) -> Iterable[_Step]:
    """The same steps, with a bar that moves as they are taken.

    Args:
        total: their number, where `steps` has no length.
    """
    from rich.console import Console
    from rich.progress import track as rich_track

    return rich_track(steps, doing, total=total, disable=not shown, transient=True, console=Console(stderr=True))
