"""Processes and what they start: ending all of them, and keeping the files and the memory of a parent from its children."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil

_SET_DUMPABLE = 4  # of prctl(2)
_LONGEST_S = 5.0  # a process that the kernel cannot end, such as one that waits for a disk, is left after this time


def end_tree(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that leads its session, and wait until all that it started has ended, also in a sandbox.

    A sandbox is a session of its own. The kernel ends it when its parent is gone, which takes 0.1 s on a busy machine.
    """
    import psutil

    started: list[psutil.Process] = []
    with contextlib.suppress(psutil.Error):
        started = psutil.Process(process.pid).children(recursive=True)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    deadline = time.monotonic() + _LONGEST_S
    while any(map(_runs, started)) and time.monotonic() < deadline:
        time.sleep(0.002)


def _runs(process: psutil.Process) -> bool:
    import psutil

    try:
        return process.is_running() and process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False


def close_to_children() -> None:
    """Let no process of the same user read this one's memory or open its files, as prctl(2) describes PR_SET_DUMPABLE."""
    ctypes.CDLL(None).prctl(_SET_DUMPABLE, 0, 0, 0, 0)


def own_channels() -> tuple[int, int]:
    """Descriptors of standard input and output for messages; whatever reads or prints from here on gets nothing and disturbs none."""
    reader, writer = os.dup(0), os.dup(1)
    with open(os.devnull, "r+b") as nowhere:
        os.dup2(nowhere.fileno(), 0)
        os.dup2(nowhere.fileno(), 1)
    return reader, writer


def close_all_but(kept: set[int]) -> None:
    """Close every file of this process but the standard ones and the `kept` descriptors: a fork has all of its parent's."""
    for number in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if number > 2 and number not in kept:
            with contextlib.suppress(OSError):
                os.close(number)
