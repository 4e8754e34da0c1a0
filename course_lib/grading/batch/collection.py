"""What lies under ``submitted/``: for each student the folder of a lab, and a line about everything that is not graded."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from course_lib.errors import CourseError
from course_lib.grading.batch.arrangement import is_archive, is_system_file, lab_of
from course_lib.grading.batch.intake import Intake, Rejected, id_problem, shown


def collected(submitted: Path, lab: str) -> Intake:
    """Everything in `submitted`. Submissions of other labs are left out, and so are files that only a system writes."""
    students, rejected = list[str](), list[Rejected]()
    for path in _entries(submitted):
        name = path.name
        try:
            if not stat.S_ISDIR(path.stat().st_mode):
                way = f"{'unpack' if is_archive(name) else 'move'} it to STUDENT/{lab_of(name) or 'LAB'}/"
                rejected.append(Rejected(shown(name), f"not in a folder of a student: if it is a submission, {way}"))
                continue
            folder = submission_folder(path, lab)
            if folder and (reason := id_problem(name)):
                rejected.append(Rejected(shown(name), reason))
            elif folder:
                students.append(name)
            rejected += _left_over(path, lab, folder)
        except OSError as error:
            rejected.append(Rejected(shown(name), f"the folder cannot be read ({error.strerror})"))
        except CourseError as error:
            rejected.append(Rejected(shown(name), str(error)))
    return Intake(tuple(students), tuple(rejected))


def submission_folder(student: Path, lab: str) -> Path | None:
    """The folder of a student's submission of a lab: by its full name, by a name such as ``lab01`` or ``LAB (1)``, or the student's
    folder itself if the lab's notebook, or an archive with the lab's name, is directly in it; None for none of these.

    Raises:
        CourseError: the folder is a link or a file, or several folders can be meant.
        OSError: the student's folder cannot be read.
    """
    exact = student / lab
    if student.is_symlink() or exact.is_symlink():
        raise CourseError(f"{'the folder' if student.is_symlink() else lab} is a link: put a copy of the files in its place")
    if exact.is_dir():
        return exact
    if exact.exists():
        raise CourseError(f"{lab} is not a folder")
    meant = [path for path in _entries(student) if lab_of(path.name) == lab]
    folders = [path for path in meant if path.is_dir() and not path.is_symlink()]
    if len(folders) > 1:
        raise CourseError(
            f"{len(folders)} folders could be {lab} ({', '.join(shown(path.name) for path in folders)}): keep one"
        )
    files = [path for path in meant if path.is_file() and (path.suffix.lower() == ".ipynb" or is_archive(path.name))]
    return folders[0] if folders else student if files else None


def _left_over(student: Path, lab: str, folder: Path | None) -> list[Rejected]:
    """Lines about what a student's folder holds beside submissions, or that it holds nothing."""
    entries = [] if folder == student else _entries(student)
    lines = []
    for path in entries:
        other = lab_of(path.name)
        place = shown(f"{student.name}/{path.name}")
        if path == folder or (other and other != lab):
            continue
        if folder and other == lab:
            lines.append(Rejected(place, f"not graded, because {folder.name} is: move what belongs to it there"))
        else:
            lines.append(Rejected(place, f"not in the folder of a lab: if it belongs to {lab}, move it to STUDENT/{lab}/"))
    if not entries and folder is None:
        lines.append(Rejected(shown(student.name), "the folder is empty"))
    if folder is None and lab_of(student.name):
        expected = f"expected STUDENT/{lab_of(student.name)}/, found the name of a lab in place of a student's id"
        return [Rejected(shown(student.name), expected)]
    return lines


def _entries(folder: Path) -> list[Path]:
    """What a person may have put into a folder, sorted; nothing if there is no such folder."""
    try:
        return sorted((path for path in folder.iterdir() if not is_system_file(path)), key=os.fsencode)
    except (FileNotFoundError, NotADirectoryError):
        return []
