"""Take files from a folder that a learner's code could write to, without following links to other places."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path

from course_lib.errors import CourseError


class ArtifactRejected(CourseError):
    """A file of a submission is not what it pretends to be."""


class ArtifactTooLarge(ArtifactRejected):
    """A file of a submission exceeds its limit."""


def take(source: Path, target: Path, *, max_bytes: int) -> None:
    """Copy one regular file.

    The file is opened first and judged by its descriptor, so that it cannot be swapped in between. O_NOFOLLOW rejects a
    link, O_NONBLOCK keeps a FIFO from blocking, and a second hard link could be the name of another user's file.

    Raises:
        ArtifactRejected: no such file, not a plain file, or (`ArtifactTooLarge`) too large.
    """
    try:
        descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise ArtifactRejected(f"{source.name} was not submitted") from None
    except OSError as error:
        raise ArtifactRejected(f"{source.name} is not a plain file ({error.strerror})") from None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        os.close(descriptor)
        raise ArtifactRejected(f"{source.name} is not a plain file")
    with os.fdopen(descriptor, "rb") as file:
        if status.st_size > max_bytes:
            raise ArtifactTooLarge(f"{source.name} is larger than {max_bytes:,} bytes, the largest size that is taken")
        with open(target, "wb") as copy:
            shutil.copyfileobj(file, copy)


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


def copy_plain(source: Path, target: Path) -> None:
    """Copy the regular files and folders of a folder, without links, pipes and devices."""
    for folder, folders, files in os.walk(source, followlinks=False):
        folders[:] = [name for name in folders if not os.path.islink(os.path.join(folder, name))]
        into = target / os.path.relpath(folder, source)
        into.mkdir(parents=True, exist_ok=True)
        for name in files:
            if is_plain(Path(folder, name)):
                shutil.copyfile(Path(folder, name), into / name, follow_symlinks=False)


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
