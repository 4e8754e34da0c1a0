"""nbgrader's gradebook: one for a hand-in by itself, and the way of its grades into the classroom's, which one process writes."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from course_lib.grading import late, parcel
from course_lib.labs import Lab


def template(classroom: Path, source: Path, lab: Lab) -> bytes:
    """The lab's release and sources beside a gradebook that knows the lab, its due date and nobody, packed.

    Args:
        classroom: folder with ``gradebook.db`` and ``release/``, where nbgrader has registered the lab.
        source: the course's folder of solutions.
        lab: which.
    """
    from nbgrader.api import Gradebook

    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder, "classroom")
        work.mkdir()
        shutil.copyfile(classroom / "gradebook.db", work / "gradebook.db")
        with Gradebook(f"sqlite:///{work / 'gradebook.db'}") as book:
            for student in book.students:
                book.remove_student(student.id)
        shutil.copytree(classroom / "release" / lab.name, work / "release" / lab.name)
        ignored = shutil.ignore_patterns(*lab.artefacts, ".ipynb_checkpoints", "*.ipynb")
        shutil.copytree(source / lab.name, Path(folder, "solutions", lab.name), ignore=ignored)
        return parcel.pack(Path(folder)).content


def entry(path: Path, lab: Lab, student: str) -> dict[str, Any]:
    """What the gradebook at `path` holds of a submission, as plain JSON values; empty where it holds none."""
    from nbgrader.api import Gradebook, MissingEntry

    with Gradebook(f"sqlite:///{path}") as book:
        try:
            submission = book.find_submission(lab.name, student)
        except MissingEntry:
            return {}
        return {
            "timestamp": submission.timestamp.isoformat() if submission.timestamp else None,
            "notebooks": {
                notebook.name: {
                    "grades": {
                        grade.name: {"auto_score": grade.auto_score, "needs_manual_grade": grade.needs_manual_grade}
                        for grade in notebook.grades
                    },
                    "comments": {comment.name: comment.auto_comment for comment in notebook.comments},
                }
                for notebook in submission.notebooks
            },
        }


def record(
    path: Path, lab: Lab, student: str, found: Mapping[str, Any], settings: Mapping[str, Mapping[str, Any]] | None = None
) -> bool:
    """Write an `entry` into the gradebook at `path`; what an instructor gave by hand stays.

    Late penalties are computed here and not taken from the entry: extensions and points given by hand are in this gradebook only.

    Args:
        settings: nbgrader's configuration by class, for `late.LatePenalty`.

    Returns:
        Whether an instructor has given points or a comment by hand.
    """
    from nbgrader.api import Gradebook
    from traitlets.config import Config

    by_hand = False
    with Gradebook(f"sqlite:///{path}") as book:
        book.update_or_create_student(student)
        time = {"timestamp": datetime.fromisoformat(found["timestamp"])} if found["timestamp"] else {}
        submission = book.update_or_create_submission(lab.name, student, **time)
        for notebook in submission.notebooks:
            new = found["notebooks"].get(notebook.name, {"grades": {}, "comments": {}})
            for grade in notebook.grades:
                if grade.name in new["grades"]:
                    grade.auto_score = new["grades"][grade.name]["auto_score"]
                    waits = new["grades"][grade.name]["needs_manual_grade"]
                    grade.needs_manual_grade = waits or grade.manual_score is not None
                by_hand = by_hand or grade.manual_score is not None
            for comment in notebook.comments:
                comment.auto_comment = new["comments"].get(comment.name, comment.auto_comment)
                by_hand = by_hand or comment.manual_comment is not None
        book.db.commit()
        late.charge(submission, Config(dict(settings or {})))
        book.db.commit()
    return by_hand
