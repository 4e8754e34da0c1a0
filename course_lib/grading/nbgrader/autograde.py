"""nbgrader's own "Autograde", such as formgrader's button: it grades as the command does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode
from typing_extensions import override

from course_lib._util.files import remove_tree
from course_lib.errors import CourseError
from course_lib.grading.batch.classroom import Classroom
from course_lib.grading.batch.journal import Journal
from course_lib.grading.nbgrader.bridge import OfClassroom, lab_of


class GradeAsCourse(OfClassroom):
    """The same as ``course grade LAB --student STUDENT``, in the place of nbgrader's steps."""

    @override
    def preprocess(self, nb: NotebookNode, resources: dict[str, Any]) -> tuple[NotebookNode, dict[str, Any]]:
        room, lab, student = Classroom(Path(self.root), self.work), lab_of(resources), resources["nbgrader"]["student"]
        graded = room.folder / "autograded" / student / lab.name / f"{lab.name}.ipynb"
        remove_tree(graded.parent)  # nbgrader's own copy, which may have active content
        Journal(room.folder / "jobs" / lab.name).finish([student])  # the graded copy of an interrupted batch is gone, too
        (grade,) = room.grade(lab, [student])
        if not graded.is_file():
            raise CourseError(grade.error or f"{student} was not graded")
        if grade.error:
            self.log.warning("%s", grade.error)
        return nbformat.read(graded, as_version=4), resources
