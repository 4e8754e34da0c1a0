"""Everything that `course report` writes: the page of a class, and where asked the leaderboard and a CSV file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from course_lib._util.files import write_atomically
from course_lib.grading.batch.classroom import Classroom
from course_lib.grading.integrity import signature
from course_lib.grading.nbgrader import gradebook
from course_lib.grading.reports import class_page, class_report, exports
from course_lib.grading.reports import leaderboard as board
from course_lib.grading.reports.class_report import ClassReport
from course_lib.grading.reports.leaderboard import Place
from course_lib.labs import Lab


@dataclass(frozen=True)
class ClassFiles:
    """A class report, the leaderboard where it was asked for, and the files that were written.

    Attributes:
        recharged: late penalties that were out of date, before and after, by student. The gradebook has the new ones.
    """

    report: ClassReport
    recharged: Mapping[str, tuple[float, float]]
    places: tuple[Place, ...]
    files: tuple[Path, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        places = [asdict(place) for place in self.places]
        penalties = {student: list(penalty) for student, penalty in self.recharged.items()}
        return {
            **self.report.to_json(),
            "penalties_changed": penalties,
            "leaderboard": places,
            "files": [str(path) for path in self.files],
        }


def write(
    lab: Lab,
    room: Classroom,
    csv: Path | None = None,
    form: str = "nbgrader",
    *,
    leaderboard: bool = False,
    anonymous: bool = False,
) -> ClassFiles:
    """Bring late penalties and learners' reports up to date, read a class, and write ``reports/LAB.html`` and what else was asked for.

    Raises:
        CourseError: nothing was graded, a verdict cannot be read, or there is no such format.
    """
    class_report.check_graded(lab, room)
    recharged = gradebook.charge(room.folder, lab, room.settings)
    report = class_report.read(lab, room)
    room.update_reports(lab, [one.student for one in report.submissions])
    pages = {f"{lab.name}.html": class_page.page(report)}
    places: tuple[Place, ...] = ()
    if leaderboard:
        # Only the holder of the classroom's key can make this signature, and Ed25519 makes the same one each time.
        key = signature.signing_key(room.folder).sign(b"leaderboard") if anonymous else None
        places = board.ranked(report.submissions, key=key)
        pages[f"{lab.name}.leaderboard.html"] = class_page.board(report, places)
    files = [room.folder / "reports" / name for name in pages]
    if csv:
        exports.export(form, lab, room, report, csv)
        files.append(csv)
    for path, text in zip(files, pages.values(), strict=False):
        path.parent.mkdir(exist_ok=True)
        write_atomically(path, text.encode())
    return ClassFiles(report, recharged, places, tuple(files))
