"""Identical files among the submissions of a class, and the weight of this evidence.

Equal digests alone prove little: the course's own export writes the same file for all learners, and many learners find a recipe
with one right answer. Two equal files mean something if nearly all other learners have their own version. All equal files are listed,
with this reading.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

EVERYTHING = "all files"
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
        given: whether it is a file that all learners received, unchanged.
    """

    file: str
    students: tuple[str, ...]
    versions: int
    handed_in: int
    telling: bool
    given: bool = False

    @property
    def reading(self) -> str:
        """The interpretation, in a few words."""
        versions = f"{self.versions} version{'' if self.versions == 1 else 's'} among {self.handed_in} submissions"
        if self.file == EVERYTHING:
            return "worth a look: also the notebook, with its answers and outputs, is the same"
        if self.given:
            return "as released: learners received this file, and it was not changed"
        return f"worth a look: {versions}" if self.telling else f"usual in this class: only {versions}"


def alike(files: Mapping[str, Mapping[str, str]], *, given: Collection[str] = ()) -> tuple[Alike, ...]:
    """Groups of identical files, the telling ones first, then by name.

    Args:
        files: digest by file name by student.
        given: digests of files that all learners received.
    """
    owners: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    whole: dict[frozenset[tuple[str, str]], list[str]] = defaultdict(list)
    for student, digest_of in files.items():
        for name, value in digest_of.items():
            owners[name][value].append(student)
        if len(digest_of) > 1 and any(name.endswith(".ipynb") and value not in given for name, value in digest_of.items()):
            whole[frozenset(digest_of.items())].append(student)
    groups = [
        Alike(
            name,
            tuple(sorted(students)),
            len(versions),
            _count(versions),
            value not in given and _telling(versions),
            value in given,
        )
        for name, versions in owners.items()
        for value, students in versions.items()
        if len(students) > 1
    ]
    groups += [
        Alike(EVERYTHING, tuple(sorted(students)), len(whole), len(files), telling=True)
        for students in whole.values()
        if len(students) > 1
    ]
    return tuple(sorted(groups, key=lambda group: (not group.telling, group.file, group.students)))


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _count(versions: Mapping[str, list[str]]) -> int:
    return sum(len(students) for students in versions.values())


def _telling(versions: Mapping[str, list[str]]) -> bool:
    return sum(len(students) == 1 for students in versions.values()) > _OWN * _count(versions)
