"""The data of a classroom on one graded submission: points, pages, and the reason if something is missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from course_lib._util.files import write_atomically
from course_lib.grading.judge.review import FAULT, NO_VERDICT, Review, Reviewed
from course_lib.labs import Lab


@dataclass(frozen=True)
class Grade(Reviewed):
    """The gradebook's data on one submission, including written questions.

    Attributes:
        error: why it was graded in part or not graded.
        notes: lines on its files, such as "Model.ONNX was taken as model.onnx". They do not ask for anything.
    """

    student: str
    review: Review
    report: Path
    feedback: Path
    error: str = ""
    notes: tuple[str, ...] = ()
    changed: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """Whether it has to be graded again: something is missing, the examiner failed, or it has not been judged."""
        return bool(self.error) or any(reason.code in (FAULT, NO_VERDICT) for reason in self.review.reasons)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "student": self.student,
            "score": self.score,
            "max_score": self.max_score,
            "review": self.review.to_json(),
            "report": str(self.report),
            "feedback": str(self.feedback),
            "error": self.error,
            "notes": list(self.notes),
            "changed": {task: list(points) for task, points in self.changed.items()},
        }


def note(classroom: Path, student: str, lab: Lab, error: str) -> None:
    """Keep `Grade.error` until the submission is graded again; "" removes it."""
    path = _reason_file(classroom, student, lab)
    if error:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, error.encode(errors="replace"))
    else:
        path.unlink(missing_ok=True)


def noted(classroom: Path, student: str, lab: Lab) -> str:
    """The `Grade.error` of the last grading, or ""."""
    try:
        return _reason_file(classroom, student, lab).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _reason_file(classroom: Path, student: str, lab: Lab) -> Path:
    return classroom / "reports" / student / f"{lab.name}.reason.txt"
