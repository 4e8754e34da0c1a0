"""Keeping a learner's processes apart: they cannot inspect others, outlive their server, or run while others are timed."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path

_SET_DUMPABLE, _SET_CHILD_SUBREAPER = 4, 36  # of prctl(2)


def keep_apart() -> None:
    """Servers cannot inspect this process, and their child processes stay below it even if they detach."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl(_SET_DUMPABLE, 0, 0, 0, 0)
    prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


@contextlib.contextmanager
def frozen(but: Iterable[int]) -> Iterator[None]:
    """Stop every process below this one, except `but`, for the duration of the block."""
    below = descendants(os.getpid()) - set(but)
    send(below, signal.SIGSTOP)
    try:
        yield
    finally:
        send(below, signal.SIGCONT)


def descendants(pid: int) -> set[int]:
    """All descendants of a process, found through its children and those of its threads.

    Source: proc_pid_task_tid_children(5).
    """
    found: set[int] = set()
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, file.read_text().split()):
                found |= {child} | descendants(child)
    return found


def send(pids: set[int], number: signal.Signals) -> None:
    """Send a signal to processes, some of which may have ended."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
