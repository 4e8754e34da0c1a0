"""nbgrader's own "Autograde", such as formgrader's button: it grades as the command does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode
from typing_extensions import override

from course_lib.grading.batch.classroom import Classroom
from course_lib.grading.nbgrader.bridge import OfClassroom, lab_of


class GradeAsCourse(OfClassroom):
    """The same as ``course grade LAB --student STUDENT``, in the place of nbgrader's steps."""

    @override
    def preprocess(self, nb: NotebookNode, resources: dict[str, Any]) -> tuple[NotebookNode, dict[str, Any]]:
        room, lab, student = Classroom(Path(self.root), self.work), lab_of(resources), resources["nbgrader"]["student"]
        (grade,) = room.grade(lab, [student])
        if grade.error:
            self.log.warning("%s", grade.error)
        graded = room.folder / "autograded" / student / lab.name / f"{lab.name}.ipynb"
        return nbformat.read(graded, as_version=4), resources
