"""Take files from a folder that a learner's code could write to, without following links to other places."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from course_lib.errors import CourseError


class ArtifactTooLarge(CourseError):
    """A file of a submission exceeds its limit."""


def open_plain(path: Path) -> BinaryIO:
    """Open a regular file that has one name.

    The file is opened first and judged by its descriptor, so that it cannot be swapped in between. O_NOFOLLOW rejects a
    link, O_NONBLOCK keeps a FIFO from blocking, and a second hard link could be the name of another user's file.

    Raises:
        OSError: there is no such file, or it is something else.
    """
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK))  # noqa: SIM115
    status = os.fstat(file.fileno())
    if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
        return file
    file.close()
    raise OSError(errno.EINVAL, "not a plain file")


def take(source: Path, target: Path, *, max_bytes: int) -> None:
    """Copy one regular file.

    Raises:
        CourseError: no such file, not a plain file, or (`ArtifactTooLarge`) too large.
    """
    try:
        file = open_plain(source)
    except FileNotFoundError:
        raise CourseError(f"{source.name} was not submitted") from None
    except PermissionError:
        raise CourseError(f"{source.name} cannot be read by the grader: give it read permission") from None
    except OSError:
        raise CourseError(f"{source.name} is not a plain file") from None
    with file:
        if os.fstat(file.fileno()).st_size > max_bytes:
            raise ArtifactTooLarge(f"{source.name} is larger than {max_bytes:,} bytes, the largest size that is taken")
        target.write_bytes(file.read(max_bytes))


def take_all(limits: Mapping[str, int], source: Path, target: Path) -> str:
    """Copy the existing files of a submission. A missing file costs the tasks that need it, and the lab names these tasks.

    Args:
        limits: largest size by name, as in `Lab.artifacts`.

    Returns:
        Why a file is rejected, or "".
    """
    try:
        for name, limit in limits.items():
            if os.path.lexists(source / name):
                take(source / name, target / name, max_bytes=limit)
    except CourseError as error:
        return str(error)
    return ""


def drop_special_files(folder: Path) -> list[str]:
    """Remove every link, pipe, device and second hard link below `folder`; return the removed names."""
    dropped = []
    for here, folders, files in os.walk(folder, followlinks=False):
        for name in (*folders, *files):
            path = Path(here, name)
            if not (is_plain(path) or (path.is_dir() and not path.is_symlink())):
                path.unlink()
                dropped.append(str(path.relative_to(folder)))
    return dropped


def is_plain(path: Path) -> bool:
    """Whether `path` itself is a regular file with one name."""
    status = path.lstat()
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1
