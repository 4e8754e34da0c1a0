"""Temporary files of a grader in a folder with an owner, so that the next grader removes the files of a killed one."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from course_lib._util.files import remove_tree

# No folder of a person is named so: those without a lock are removed. It is short, because a socket's path has at most 107 characters.
_PREFIX = ".trt-grader-"


@contextmanager
def owned() -> Iterator[Path]:
    """Put all temporary files of this process, and of processes that it starts, into its own folder, which is removed at the end.

    The kernel holds a lock on the folder while this process lives. A folder without a lock belongs to a killed process
    and is removed before and after.
    """
    before = tempfile.tempdir, os.environ.get("TMPDIR")
    here = Path(tempfile.gettempdir())
    parent = here.parent if here.name.startswith(_PREFIX) else here  # a grader's own processes have folders beside its own
    _sweep(parent)
    own, lock = _locked_folder(parent)
    tempfile.tempdir = os.environ["TMPDIR"] = str(own)
    try:
        yield own
    finally:
        tempfile.tempdir = before[0]
        if before[1] is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = before[1]
        remove_tree(own)  # while it is locked: a forked child may hold the lock for longer, and a sweep would then pass it over
        os.close(lock)
        _sweep(parent)


def _locked_folder(parent: Path) -> tuple[Path, int]:
    """A new folder, and the descriptor that holds its lock. Another process may sweep the folder before it is locked."""
    import fcntl

    while True:
        own = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        with contextlib.suppress(FileNotFoundError):
            lock = os.open(own, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if own.exists():
                return own, lock
            os.close(lock)


def _sweep(parent: Path) -> None:
    """Remove this user's folders whose owner has died."""
    import fcntl

    for folder in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(lock).st_uid == os.getuid():
                    remove_tree(folder)
            finally:
                os.close(lock)
