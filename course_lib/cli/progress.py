"""How far a reader is: solved exercises of each lecture, and files written for each lab."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from course_lib._util.files import course_folder
from course_lib._util.html import GREEN, LEFT, RIGHT, notebook_table
from course_lib._util.progress_bar import in_notebook
from course_lib.cli.checked_folder import cells_of, written_points
from course_lib.exercises import lecture_numbers, of_lecture
from course_lib.exercises.progress import done

if TYPE_CHECKING:
    from markupsafe import Markup

    from course_lib.labs import Lab

_TAKES = re.compile(r"takes\*\* about\s+(\d+)\s+minutes")  # in the first cells of a lecture or a lab


@dataclass(frozen=True)
class LectureProgress:
    """`minutes` are for reading and exercises, and `page` is the notebook in the course's folder."""

    number: int
    title: str
    solved: int
    exercises: int
    minutes: int
    page: str

    @property
    def heading(self) -> str:
        """As in the syllabus."""
        return f"{self.number}. {self.title}"


@dataclass(frozen=True)
class LabProgress:
    """`written` of the `files` of a submission are in the lab's folder; `course check` says whether they earn its `points`.

    `minutes` is what the notebook says that the lab takes.
    """

    name: str
    title: str
    written: int
    files: int
    minutes: int
    points: float

    @property
    def page(self) -> str:
        """The notebook in the course's folder."""
        return f"labs/{self.name}/{self.name}.ipynb"


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
        lectures = [(row.heading, row.solved, row.exercises, row.minutes) for row in self.lectures]
        yield ("lecture", "exercises solved", "takes (hours)"), _with_sums("all lectures", lectures)
        labs = [(row.title, row.written, row.files, row.minutes, row.points) for row in self.labs]
        yield ("lab", "files written", "takes (hours)", "worth (points)"), _with_sums("all labs", labs)

    @property
    def next_row(self) -> LectureProgress | LabProgress | None:
        """The first lecture with an unsolved exercise, then the first lab without all of its files."""
        lecture = next((row for row in self.lectures if row.solved < row.exercises), None)
        return lecture or next((row for row in self.labs if row.written < row.files), None)

    @property
    def next_step(self) -> str:
        """In a few words."""
        row = self.next_row
        if isinstance(row, LectureProgress):
            return f"lecture {row.number}, {row.title}"
        return row.title if row else "`course check LAB` says whether the files are right"

    @property
    def next_link(self) -> Markup | str:
        """The same for a notebook of the course."""
        return _link(self.next_row.page, self.next_step) if self.next_row else self.next_step

    def _repr_html_(self) -> str:
        from markupsafe import Markup

        pages = [[_link(row.page, row.heading) for row in self.lectures], [_link(row.page, row.title) for row in self.labs]]
        text = Markup("<p><b>Next: {}</b></p>").format(self.next_link)
        for (columns, rows), links in zip(self.tables(), pages, strict=True):
            styles = dict(zip(columns, (LEFT, LEFT, RIGHT, RIGHT), strict=False))
            cells = [(link, _bar(row[1]), *row[2:]) for link, row in zip([*links, rows[-1][0]], rows, strict=True)]
            text += Markup(notebook_table("", styles, [({}, row) for row in cells]))
        return text


def _with_sums(name: str, rows: Sequence[tuple[Any, ...]]) -> list[tuple[str, ...]]:
    """Names, what is done of how much, hours and points as texts, with a last row of all."""
    sums = (name, *map(sum, list(zip(*rows, strict=True))[1:]))
    return [
        (title, f"{done} of {count}", f"{minutes / 60:.1f}", *(f"{one:g}" for one in points))
        for title, done, count, minutes, *points in (*rows, sums)
    ]


def _link(page: str, words: str) -> Markup:
    """To a notebook, from one of another folder."""
    from markupsafe import Markup

    return Markup('<a href="../{}">{}</a>').format(page, words)


def _bar(share: str) -> Markup:
    """A bar for a text such as "2 of 3", and the text."""
    from markupsafe import Markup

    done, total = map(int, share.split(" of "))
    filled = f"display:block;height:100%;width:{100 * done / max(total, 1):.0f}%;background:{GREEN}"
    bar = "display:inline-block;width:6em;height:.6em;background:#8884"
    return Markup('<span style="{}"><span style="{}"></span></span> {}').format(bar, filled, share)


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
        title, page, reading = _about_lecture(root, number)
        minutes = reading + sum(exercise.minutes for exercise in exercises)
        count = sum(exercise.id in solved for exercise in exercises)
        lectures.append(LectureProgress(number, title, count, len(exercises), minutes, page))
    return Progress(tuple(lectures), tuple(_lab_progress(labs.find(name), root) for name in labs.names()))


def show_progress() -> None:
    """Print the progress of this user; the start page calls it, and shows tables with links."""
    from course_lib.cli import console

    found = progress_of()
    if in_notebook():
        from IPython.display import display

        display(found)
        return
    print(f"next: {found.next_step}")
    for columns, rows in found.tables():
        console.table("", columns, rows)


def _lab_progress(lab: Lab, root: Path | None) -> LabProgress:
    written = sum((root / "labs" / lab.name / file).exists() for file in lab.artifacts) if root else 0
    minutes, cells = 0, cells_of(lab, root)
    with suppress(TypeError):  # a learner may have damaged the notebook
        minutes = next(filter(None, (_minutes(cell.get("source", "")) for cell in cells)), 0)
    points = sum(task.points for task in lab.tasks) + written_points(cells)
    return LabProgress(lab.name, lab.title, written, len(lab.artifacts), minutes, points)


def _minutes(source: Sequence[str]) -> int:
    """What a cell says that its notebook takes, 0 if it does not say it."""
    found = _TAKES.search("".join(source))
    return int(found[1]) if found else 0


def _about_lecture(root: Path | None, number: int) -> tuple[str, str, int]:
    """Title and minutes of reading from the lecture's first cell, and the page."""
    for path in (root or Path()).glob(f"lectures/{number:02}_*.ipynb"):
        page = f"lectures/{path.name}"
        try:
            source = json.loads(path.read_text(encoding="utf-8"))["cells"][0]["source"]
            return "".join(source).splitlines()[0].lstrip("# ").partition(" ")[2], page, _minutes(source)
        except (OSError, ValueError, LookupError, TypeError, RecursionError):  # a reader may have damaged a notebook
            return f"Lecture {number}", page, 0
    return f"Lecture {number}", "lectures/00_start_here.ipynb", 0
