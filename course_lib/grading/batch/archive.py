"""Folders on their way to another one: copied on this machine, or packed for another process. Only plain files travel."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path

from course_lib.grading.batch.intake import is_usual_name, shown
from course_lib.grading.judge.artifacts import open_plain

MOST_BYTES, MOST_FILES, DEEPEST = 256 << 20, 1_000, 20
TIMES_UNPACKED = 4  # so many times as much, for a submission with what was unpacked from it


@dataclass(frozen=True)
class Archive:
    """Packed files: contents by path."""

    contents: dict[str, bytes] = field(repr=False)

    @property
    def packed(self) -> Archive:
        """This archive, as a `Selection` has one."""
        return self

    def copy_to(self, target: Path) -> None:
        """Write the files below `target` and replace existing ones."""
        _write(self.contents.items(), target)


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
        _write(self._read([]), target)

    def look(self) -> tuple[str, tuple[str, ...]]:
        """A digest of the files, and the paths of plain files that are left out because they do not fit."""
        digest, left_out = hashlib.sha256(), list[str]()
        for name, content in self._read(left_out):
            digest.update(f"{len(name)} {name} {len(content)} ".encode() + content)
        return digest.hexdigest(), tuple(left_out)

    @cached_property
    def packed(self) -> Archive:
        """The files as they are now."""
        return Archive(dict(self._read([])))

    def _read(self, left_out: list[str]) -> Iterator[tuple[str, bytes]]:
        """Path and content."""
        size, others, count, met = 0, 0, 0, set[Path]()
        for path, other in islice(_files(self.folder, self.names), 20 * MOST_FILES):
            if path in met:
                continue
            met.add(path)
            try:
                file = open_plain(path)
            except OSError:
                continue  # a link, or gone
            with file:
                name = path.relative_to(self.folder).as_posix()
                length = os.fstat(file.fileno()).st_size
                fits = size + length <= self.times * MOST_BYTES and count < self.times * MOST_FILES
                if not is_usual_name(name) or not fits or (other and others + length > self.others):
                    left_out.append(shown(name))
                else:
                    size += length
                    others += length * other
                    count += 1
                    yield name, file.read(length)


def _write(files: Iterable[tuple[str, bytes]], target: Path) -> None:
    for name, content in files:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_bytes(content)


def _files(folder: Path, names: Sequence[str]) -> Iterator[tuple[Path, bool]]:
    """Paths, and whether only the name of a folder selects them."""
    for name in names:
        if not (folder / name).is_dir():
            yield folder / name, False
        for here, folders, files in os.walk(folder / name, followlinks=False):
            deep = len(Path(here).relative_to(folder).parts) >= DEEPEST  # deeper down, Python's own tools give up
            folders[:] = [] if deep else sorted(folders)
            yield from ((Path(here, file), True) for file in sorted(files))
