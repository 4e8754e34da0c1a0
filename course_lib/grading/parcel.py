"""Folders as bytes, for the way to another process or machine and back. Only plain files travel."""

from __future__ import annotations

import io
import os
import stat
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from course_lib.errors import CourseError

MOST_BYTES, MOST_FILES, DEEPEST = 256 << 20, 1_000, 20


@dataclass(frozen=True)
class Parcel:
    """A packed folder.

    Attributes:
        content: a tar archive.
        left_out: plain files that did not fit, by their path.
    """

    content: bytes = field(repr=False)
    left_out: tuple[str, ...] = ()


def pack(folder: Path, names: Sequence[str] = (".",), *, times: int = 1) -> Parcel:
    """The plain files below `folder`, at most 256 MiB, 1,000 files and 20 folders deep; links, pipes, devices and second hard links stay.

    Args:
        folder: what paths in the archive are relative to.
        names: what of it, where it exists, the most important first.
        times: how often the limits are allowed.
    """
    archive, size, taken, left_out = io.BytesIO(), 0, set[Path](), []
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in islice(_files(folder, names), 20 * MOST_FILES):
            if path in taken:
                continue
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            except OSError:
                continue  # a link, or gone
            with os.fdopen(descriptor, "rb") as file:
                status = os.fstat(descriptor)
                if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
                    continue
                name = path.relative_to(folder).as_posix()
                if not _usual(name):
                    left_out.append(ascii(name)[:100])
                    continue
                if size + status.st_size > times * MOST_BYTES or len(taken) >= times * MOST_FILES:
                    left_out.append(name)
                    continue
                size += status.st_size
                taken.add(path)
                entry = tarfile.TarInfo(name)
                entry.size, entry.mtime = status.st_size, int(status.st_mtime)
                tar.addfile(entry, file)
    return Parcel(archive.getvalue(), tuple(left_out))


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
            temporary = target.with_name(".partial")
            temporary.write_bytes(content.read())
            temporary.replace(target)


def _usual(name: str) -> bool:
    """Whether every file system and every text can hold a name."""
    return name.isprintable() and len(name.encode()) <= 1000 and max(len(part.encode()) for part in name.split("/")) <= 200


def _files(folder: Path, names: Sequence[str]) -> Iterator[Path]:
    for name in names:
        if not (folder / name).is_dir():
            yield folder / name
        for here, folders, files in os.walk(folder / name, followlinks=False):
            deep = len(Path(here).relative_to(folder).parts) >= DEEPEST  # deeper down, Python's own tools give up
            folders[:] = [] if deep else sorted(folders)
            yield from (Path(here, file) for file in sorted(files))
