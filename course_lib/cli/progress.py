"""How far a reader is: solved exercises of each lecture, and files written for each lab."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from course_lib._util.files import course_folder
from course_lib.exercises import lecture_numbers, of_lecture
from course_lib.exercises.progress import done


@dataclass(frozen=True)
class LectureProgress:
    """`minutes_left` is what the unsolved exercises take."""

    number: int
    title: str
    solved: int
    exercises: int
    minutes_left: int


@dataclass(frozen=True)
class LabProgress:
    """`written` of the `files` of a submission are in the lab's folder; `course check` says whether they earn its `points`."""

    name: str
    title: str
    written: int
    files: int
    points: float


@dataclass(frozen=True)
class Progress:
    """The rows of both tables, in the order of the course."""

    lectures: tuple[LectureProgress, ...]
    labs: tuple[LabProgress, ...]

    def to_json(self) -> dict[str, object]:
        """Plain values for ``course progress --json``."""
        return asdict(self)

    def tables(self) -> Iterator[tuple[Sequence[str], Sequence[Sequence[str]]]]:
        """Columns and rows of both tables, with the sums."""
        lectures = [
            (f"{row.number}. {row.title}", f"{row.solved} of {row.exercises}", str(row.minutes_left)) for row in self.lectures
        ]
        solved, exercises, minutes = (
            sum(getattr(row, column) for row in self.lectures) for column in ("solved", "exercises", "minutes_left")
        )
        lectures.append(("all lectures", f"{solved} of {exercises}", str(minutes)))
        yield ("lecture", "exercises solved", "minutes left"), lectures
        labs = [(row.title, f"{row.written} of {row.files}", f"{row.points:g}") for row in self.labs]
        written, files, points = (sum(getattr(row, column) for row in self.labs) for column in ("written", "files", "points"))
        labs.append(("all labs", f"{written} of {files}", f"{points:g}"))
        yield ("lab", "files written", "points to earn"), labs

    @property
    def next_step(self) -> str:
        """The first lecture with an unsolved exercise, then the first lab without all of its files."""
        for lecture in self.lectures:
            if lecture.solved < lecture.exercises:
                return f"next: lecture {lecture.number}, {lecture.title}"
        for lab in self.labs:
            if lab.written < lab.files:
                return f"next: {lab.title}"
        return "next: `course check LAB` says whether the files are right"


def progress_of(root: Path | None = None) -> Progress:
    """The progress of this user in a course folder.

    Args:
        root: the course's folder; default: found from the current folder. Without one, titles and files of labs are not known.
    """
    from course_lib import labs

    root = root or course_folder()
    solved = done(root)
    lectures = []
    for number in lecture_numbers():
        exercises = of_lecture(number)
        open_ones = [exercise for exercise in exercises if exercise.id not in solved]
        minutes = sum(exercise.minutes for exercise in open_ones)
        lectures.append(LectureProgress(number, _title(root, number), len(exercises) - len(open_ones), len(exercises), minutes))
    handed = []
    for lab in map(labs.find, labs.names()):
        written = sum((root / "labs" / lab.name / file).exists() for file in lab.artifacts) if root else 0
        handed.append(LabProgress(lab.name, lab.title, written, len(lab.artifacts), sum(task.points for task in lab.tasks)))
    return Progress(tuple(lectures), tuple(handed))


def show_progress() -> None:
    """Print the progress of this user; the start page calls it."""
    from course_lib.cli import console

    found = progress_of()
    for columns, rows in found.tables():
        console.table("", columns, rows)
    print(found.next_step)


def _title(root: Path | None, number: int) -> str:
    """From the heading of the lecture's first cell."""
    for path in (root or Path()).glob(f"lectures/{number:02}_*.ipynb"):
        try:
            first = "".join(json.loads(path.read_text(encoding="utf-8"))["cells"][0]["source"])
        except (OSError, ValueError, LookupError, TypeError, RecursionError):  # a reader may have damaged a notebook
            break
        return first.splitlines()[0].lstrip("# ").partition(" ")[2]
    return f"Lecture {number}"
