"""Folders on their way to another one: copied on this machine, or as an archive to another process. Only plain files travel."""

from __future__ import annotations

import hashlib
import io
import math
import os
import secrets
import stat
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import IO, BinaryIO

from course_lib.errors import CourseError
from course_lib.grading.batch.intake import file_name_problem, shown

MOST_BYTES, MOST_FILES, DEEPEST = 256 << 20, 1_000, 20
_PIECE = 1 << 16


@dataclass(frozen=True)
class Archive:
    """Packed files: a tar archive."""

    content: bytes = field(repr=False)

    def copy_to(self, target: Path) -> None:
        """Write the files below `target` and replace existing ones. No file is ever incomplete.

        Raises:
            CourseError: the archive holds anything but plain files below `target`.
        """
        with tarfile.open(fileobj=io.BytesIO(self.content)) as tar:
            for entry in tar:
                if not entry.isreg() or Path(entry.name).is_absolute() or ".." in Path(entry.name).parts:
                    raise CourseError(f"an archive holds {entry.name!r}, which is not a plain file of its own folder")
                content = tar.extractfile(entry)
                assert content is not None
                _write(target / entry.name, _pieces(content, entry.size))


@dataclass(frozen=True)
class Selection:
    """The plain files below a folder, at most 256 MiB, 1,000 files and 20 folders deep, without links, pipes and devices.

    Attributes:
        folder: folder to which the paths of the files are relative.
        names: names to select if they exist, the most important first.
        times: factor for the limits.
        others: largest total size in bytes of the files that `names` does not name, but a folder that they are in.
    """

    folder: Path
    names: Sequence[str] = (".",)
    times: int = 1
    others: float = math.inf

    def copy_to(self, target: Path) -> None:
        """As `Archive.copy_to`."""
        for name, file, size in self._opened([]):
            _write(target / name, _pieces(file, size))

    def look(self) -> tuple[str, tuple[str, ...]]:
        """A digest of the files, and the paths of plain files that are left out because they do not fit."""
        digest, left_out = hashlib.sha256(), list[str]()
        for name, file, size in self._opened(left_out):
            digest.update(f"{len(name)} {name} {size} ".encode())
            for piece in _pieces(file, size):
                digest.update(piece)
        return digest.hexdigest(), tuple(left_out)

    @cached_property
    def packed(self) -> Archive:
        """The files as they are now."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for name, file, size in self._opened([]):
                entry = tarfile.TarInfo(name)
                entry.size, entry.mtime = size, int(os.fstat(file.fileno()).st_mtime)
                tar.addfile(entry, file)
        return Archive(packed.getvalue())

    def _opened(self, left_out: list[str]) -> Iterator[tuple[str, BinaryIO, int]]:
        """Path, file and size."""
        size, others, count, met = 0, 0, 0, set[Path]()
        for path, other in islice(_files(self.folder, self.names), 20 * MOST_FILES):
            if path in met:
                continue
            met.add(path)
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            except OSError:
                continue  # a link, or gone
            with os.fdopen(descriptor, "rb") as file:
                status = os.fstat(descriptor)
                if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
                    continue
                name = path.relative_to(self.folder).as_posix()
                length = status.st_size
                fits = size + length <= self.times * MOST_BYTES and count < self.times * MOST_FILES
                if file_name_problem(name) or not fits or (other and others + length > self.others):
                    left_out.append(shown(name))
                else:
                    size += length
                    others += length * other
                    count += 1
                    yield name, file, length


def _write(target: Path, pieces: Iterable[bytes]) -> None:
    """Write a complete file or none."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".partial-{secrets.token_hex(6)}")
    try:
        with open(temporary, "xb") as file:
            for piece in pieces:
                file.write(piece)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _pieces(file: IO[bytes], left: int) -> Iterator[bytes]:
    while piece := file.read(min(left, _PIECE)):
        left -= len(piece)
        yield piece


def _files(folder: Path, names: Sequence[str]) -> Iterator[tuple[Path, bool]]:
    """Paths, and whether only the name of a folder selects them."""
    for name in names:
        if not (folder / name).is_dir():
            yield folder / name, False
        for here, folders, files in os.walk(folder / name, followlinks=False):
            deep = len(Path(here).relative_to(folder).parts) >= DEEPEST  # deeper down, Python's own tools give up
            folders[:] = [] if deep else sorted(folders)
            yield from ((Path(here, file), True) for file in sorted(files))
