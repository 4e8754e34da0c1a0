"""Ends a process together with everything that it started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil

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
