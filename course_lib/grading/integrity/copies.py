"""What is compared to find copies: the submissions of a class, those of earlier classes, the reference, and what all learners received."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import course_lib
from course_lib.errors import CourseError
from course_lib.grading.batch.classroom import Classroom
from course_lib.grading.batch.collection import submission_folder
from course_lib.grading.integrity import documents
from course_lib.grading.integrity.documents import Document
from course_lib.grading.integrity.matches import Match, similar
from course_lib.grading.isolation import withheld
from course_lib.labs import Lab
from course_lib.labs.framework import submission

EARLIER = "earlier"  # folder of a classroom with the classrooms, or submissions, of past terms
REFERENCE = "the course's reference"
_NOT_SUBMITTED = {"source", "release", "autograded", "feedback", "reports"}  # nbgrader's other folders of a classroom
CODE_OF_REFERENCES = (".py", ".cu", ".txt")  # the last one is code that must not be imported
_PACKAGE = Path(course_lib.__file__).parent
_GIVEN = ("models", "plugins")  # packages that a lab's text sends learners to, beside the lab's own


def find(lab: Lab, room: Classroom, students: Iterable[str]) -> tuple[Match, ...]:
    """The similar submissions of a class, compared with those of earlier classes and with the reference as well."""
    name = f"{lab.name}.ipynb"
    released = room.root / "labs" / lab.name / name
    of_class = {student: _read(room, lab, student, released if released.is_file() else None) for student in students}
    earlier = {who: documents.read(folder) for who, folder in _earlier(room.folder / EARLIER, lab.name)}
    return similar(of_class, {**earlier, REFERENCE: _reference(lab)}, _given(lab, room.root, released))


def shared_instances(lab: Lab, room: Classroom, students: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Ids in answer files under which several learners submitted, or that are another learner's: by id, who submitted.

    An answer file of a friend under the own id is wrong, so a friend's files are only worth something with the friend's id.
    """
    owners: dict[str, list[str]] = {}
    of_class = sorted(students)
    for student in of_class:
        folder = next(iter(_folders(room, lab, student)), None)
        names = (name for name in lab.artifacts if name.endswith(".json"))
        ids = (
            {submission.plain(submission.learner_in(folder / name)) for name in names if (folder / name).is_file()}
            if folder
            else set()
        )
        for learner in filter(None, ids):
            owners.setdefault(learner, []).append(student)
    others = {submission.plain(student): student for student in of_class}
    return {
        learner: tuple(found)
        for learner, found in sorted(owners.items())
        if len(found) > 1 or others.get(learner, found[0]) != found[0]
    }


def _read(room: Classroom, lab: Lab, student: str, released: Path | None) -> tuple[Document, ...]:
    """Of the files as they were handed in, or, of an archive, as they were unpacked."""
    found = (documents.read(folder, released) for folder in _folders(room, lab, student))
    return next(filter(None, found), ())


def _folders(room: Classroom, lab: Lab, student: str) -> list[Path]:
    folders = [room.folder / "autograded" / student / lab.name]
    with suppress(CourseError, OSError):
        folders[:0] = filter(None, [submission_folder(room.folder / "submitted" / student, lab.name)])
    return [folder for folder in folders if folder.is_dir()]


def _earlier(folder: Path, lab: str) -> Iterator[tuple[str, Path]]:
    for path in sorted(folder.rglob(lab)):
        who = path.parent.relative_to(folder)
        if path.is_dir() and not path.is_symlink() and not _NOT_SUBMITTED & set(who.parts):
            yield f"{EARLIER}/{who}", path


def _reference(lab: Lab) -> tuple[Document, ...]:
    own = [path for path in withheld.references(_PACKAGE) if lab.name in path.parts and path.suffix in CODE_OF_REFERENCES]
    return tuple(documents.code(path.read_text(encoding="utf-8"), path.name) for path in own)


def _given(lab: Lab, root: Path, released: Path) -> list[Document]:
    """The release, the lectures, and the library's files that learners get. The solution's short cells are the usual right answers."""
    notebooks = [released, root / "solutions" / lab.name / released.name, *(root / "lectures").glob("*.ipynb")]
    found = [
        one
        for path in notebooks
        if path.is_file()
        for one in documents.notebook(json.loads(path.read_bytes()), None, path.name)
    ]
    withheld_here = set(withheld.references(_PACKAGE))
    for folder in (_PACKAGE / "labs" / lab.name, *(_PACKAGE / name for name in _GIVEN)):
        files = (path for path in folder.rglob("*") if documents.SUFFIXES.get(path.suffix) == documents.CODE)
        found += [documents.code(path.read_text(encoding="utf-8"), path.name) for path in files if path not in withheld_here]
    return found
