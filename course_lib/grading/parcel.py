"""Folders as bytes, for the way to another process or machine and back. Only plain files travel."""

from __future__ import annotations

import io
import os
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path

from course_lib.errors import CourseError

MOST_BYTES, MOST_FILES = 1 << 30, 5_000


def pack(folder: Path, names: tuple[str, ...] = (".",), *, without: tuple[str, ...] = ()) -> bytes:
    """The plain files below `folder` as a tar archive; links, pipes, devices and second hard links stay behind.

    Args:
        folder: what paths in the archive are relative to.
        names: what of it, where it exists.
        without: names of files that stay behind as well.

    Raises:
        CourseError: more than 1 GiB or 5,000 files.
    """
    archive, size, count = io.BytesIO(), 0, 0
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in _files(folder, names):
            if path.name in without:
                continue
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            except OSError:
                continue  # a link, or gone
            with os.fdopen(descriptor, "rb") as file:
                status = os.fstat(descriptor)
                if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
                    continue
                size, count = size + status.st_size, count + 1
                if size > MOST_BYTES or count > MOST_FILES:
                    raise CourseError(f"{folder.name} holds more than {MOST_BYTES >> 20} MiB or {MOST_FILES} files")
                entry = tarfile.TarInfo(str(path.relative_to(folder)))
                entry.size, entry.mtime = status.st_size, int(status.st_mtime)
                tar.addfile(entry, file)
    return archive.getvalue()


def unpack(parcel: bytes, folder: Path) -> None:
    """Write what `pack` packed, over what is there. Each file appears whole or not at all.

    Raises:
        CourseError: the archive holds anything but plain files below `folder`.
    """
    with tarfile.open(fileobj=io.BytesIO(parcel)) as tar:
        for entry in tar:
            target = folder / entry.name
            if not entry.isreg() or Path(entry.name).is_absolute() or ".." in Path(entry.name).parts:
                raise CourseError(f"a parcel holds {entry.name!r}, which is no plain file of its own folder")
            content = tar.extractfile(entry)
            assert content is not None
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary = target.with_name(f".{target.name}.partial")
            temporary.write_bytes(content.read())
            temporary.replace(target)


def _files(folder: Path, names: tuple[str, ...]) -> Iterator[Path]:
    for name in names:
        for here, folders, files in os.walk(folder / name, followlinks=False):
            folders.sort()
            yield from (Path(here, file) for file in sorted(files))
