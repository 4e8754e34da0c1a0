"""Identical files among the submissions of a class, and the weight of this evidence.

Equal digests alone prove little: the course's own export writes the same file for all learners, and many learners find a recipe
with one right answer. Two equal files mean something if nearly all other learners have their own version.
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
    """A file that several learners submitted with identical bytes.

    Attributes:
        file: its name.
        students: their ids, sorted.
        versions: number of versions of the file in the class.
        handed_in: number of learners who submitted the file.
        telling: whether most of the class have their own version, so that an instructor should look at it.
    """

    file: str
    students: tuple[str, ...]
    versions: int
    handed_in: int
    telling: bool

    @property
    def reading(self) -> str:
        """The interpretation, in a few words."""
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
