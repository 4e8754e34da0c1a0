"""Identical files among the submissions of a class, and how much that says.

Equal digests alone prove little: what the course's own export writes is the same for everybody, and a recipe with one right answer
is found by many. What says something is two equal files where nearly everybody else's is their own.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

_OWN = 0.5  # share of submissions whose version nobody else has, from which equal ones are worth a look


@dataclass(frozen=True)
class Alike:
    """A file that several handed in byte for byte.

    Attributes:
        file: its name.
        students: their ids, sorted.
        versions: how many versions of the file there are in the class.
        handed_in: how many handed it in.
        telling: whether most of the class has their own version, so that this is worth a look.
    """

    file: str
    students: tuple[str, ...]
    versions: int
    handed_in: int
    telling: bool

    @property
    def reading(self) -> str:
        """What it means, in a few words."""
        if self.telling:
            return f"worth a look: {self.versions} versions among {self.handed_in} submissions"
        return (
            f"says little: only {self.versions} version{'' if self.versions == 1 else 's'} among {self.handed_in} submissions"
        )


def alike(files: Mapping[str, Mapping[str, str]], *, given: Collection[str] = ()) -> tuple[Alike, ...]:
    """Groups of identical files, the telling ones first, then by name.

    Args:
        files: digest by file name by student.
        given: digests of files that all learners received, which are left out.
    """
    owners: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for student, digest_of in files.items():
        for name, digest in digest_of.items():
            if digest not in given:
                owners[name][digest].append(student)
    found = [
        Alike(name, tuple(sorted(students)), len(versions), _count(versions), _telling(versions))
        for name, versions in owners.items()
        for students in versions.values()
        if len(students) > 1
    ]
    return tuple(sorted(found, key=lambda one: (not one.telling, one.file, one.students)))


def digests(folder: Path) -> frozenset[str]:
    """SHA-256 of every file below a folder, such as a lab's release."""
    return frozenset(hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.rglob("*") if path.is_file())


def _count(versions: Mapping[str, list[str]]) -> int:
    return sum(len(students) for students in versions.values())


def _telling(versions: Mapping[str, list[str]]) -> bool:
    return sum(len(students) == 1 for students in versions.values()) > _OWN * _count(versions)
