"""Grades of a class as CSV files that learning management systems import."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from course_lib._util.files import write_atomically
from course_lib.errors import CourseError
from course_lib.grading.batch.classroom import Classroom
from course_lib.grading.nbgrader import gradebook
from course_lib.grading.reports.class_report import ClassReport, Submission
from course_lib.labs import Lab

FORMATS = ("nbgrader", "moodle", "canvas")
_FORMULA = ("=", "+", "-", "@")  # what makes a spreadsheet compute a cell


def export(form: str, lab: Lab, room: Classroom, report: ClassReport, target: Path) -> None:
    """Write the final points of a lab.

    Raises:
        CourseError: no such format, or no folder for the file.
    """
    if form not in FORMATS:
        raise CourseError(f"no CSV format {form!r}: there are {', '.join(FORMATS)}")
    if not target.absolute().parent.is_dir():
        raise CourseError(f"{target}: no such folder")
    if form == "nbgrader":
        _nbgrader(lab, room, target)
    else:
        rows = moodle(report) if form == "moodle" else canvas(report)
        text = io.StringIO(newline="")
        csv.writer(text).writerows(rows)
        write_atomically(target, text.getvalue().encode())


def _nbgrader(lab: Lab, room: Classroom, target: Path) -> None:
    """What ``nbgrader export`` writes, by nbgrader itself, for this lab alone. Who handed nothing in has 0 points there."""
    from nbgrader.plugins import CsvExportPlugin

    with gradebook.opened(room.folder) as book:
        CsvExportPlugin(to=str(target), assignment=[lab.name]).export(book)


def moodle(report: ClassReport) -> list[list[str]]:
    """Header and rows for Moodle's *Grades, Import, CSV file*.

    There *Map from* ``Email address`` (or ``ID number``) *to* the same of the users, and the last column to a grade item.

    Source: MoodleDocs, "Grade import" (docs.moodle.org/en/Grade_import), and the columns of Moodle's own test file.
    """
    header = ["First name", "Last name", "ID number", "Email address", report.title]
    return [
        header,
        *([*map(_plain, (one.first_name, one.last_name, one.student, one.email)), _points(one)] for one in report.submissions),
    ]


def canvas(report: ClassReport) -> list[list[str]]:
    """Header, the row of possible points, and rows for Canvas's *Gradebook, Import*.

    Canvas looks for a student by its own ``ID``, which stays empty here, then by ``SIS User ID``, ``SIS Login ID`` and the name.

    Source: the importer of Canvas LMS (gradebook_importer.rb).
    """
    header = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", report.title]
    possible = ["    Points Possible", "", "", "", "", f"{max(one.max_score for one in report.submissions):g}"]
    rows = [[_plain(_name(one)), "", _plain(one.student), _plain(one.student), "", _points(one)] for one in report.submissions]
    return [header, possible, *rows]


def _points(one: Submission) -> str:
    return f"{one.final:g}"


def _name(one: Submission) -> str:
    return ", ".join(filter(None, (one.last_name, one.first_name))) or one.student


def _plain(text: str) -> str:
    """A cell that no spreadsheet takes for a formula (OWASP, CSV Injection)."""
    return f"'{text}" if text.lstrip().startswith(_FORMULA) else text
