"""Temporary files of a grader in a folder with an owner, so that the next grader removes the files of a killed one."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from course_lib._util.files import remove_tree

_NAME = "course-{}"  # of the folder that all graders of a user share, by the user's number
_PREFIX = "g-"  # short names: the path of a socket has at most 107 characters


@contextmanager
def owned() -> Iterator[Path]:
    """Put all temporary files of this process, and of processes that it starts, into its own folder, which is removed at the end.

    The kernel holds a lock on the folder while this process lives. A folder without a lock belongs to a killed process
    and is removed before and after.
    """
    import fcntl

    before = tempfile.tempdir, os.environ.get("TMPDIR")
    name, here = _NAME.format(os.getuid()), Path(tempfile.gettempdir())
    shared = here.parent if here.parent.name == name else here / name  # a grader's own processes have folders beside its own
    with _locked(shared) as private:
        if private:
            _sweep(shared)
        own = Path(tempfile.mkdtemp(prefix=_PREFIX if private else f"{shared.name}-", dir=shared if private else None))
        lock = os.open(own, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(lock, fcntl.LOCK_EX)
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
        _swept(shared)


def _swept(shared: Path) -> None:
    """Remove the folders of processes that were killed, and the shared one if no other process uses it."""
    if not shared.is_dir():
        return
    with _locked(shared) as private:
        if private:
            _sweep(shared)
            with contextlib.suppress(OSError):
                shared.rmdir()


@contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """Lock a folder that only this user can write to, and create it if necessary. False if another user has taken its name."""
    import fcntl

    while True:
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        try:
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:
            continue  # a grader that ended has just removed it
        except OSError:
            yield False
            return
        try:
            status = os.fstat(lock)
            if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o022:
                yield False
                return
            fcntl.flock(lock, fcntl.LOCK_EX)
            if os.fstat(lock).st_nlink:  # not removed while this process waited
                yield True
                return
        finally:
            os.close(lock)


def _sweep(shared: Path) -> None:
    """Remove folders whose owner has died. No process creates one meanwhile, because the caller holds `shared`."""
    import fcntl

    for folder in shared.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove_tree(folder)
            finally:
                os.close(lock)
