"""How far a reader is: solved exercises of each lecture, and files written for each lab."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

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
class Row:
    """What is done of a lecture or a lab: solved exercises, or files of a submission. `course check` says whether these earn points.

    Attributes:
        page: the notebook in the course's folder.
        minutes: what its notebook says that it takes, a lecture with its exercises.
        points: what a lab is worth, 0 for a lecture.
    """

    title: str
    page: str
    done: int
    count: int
    minutes: int
    points: float = 0.0


@dataclass(frozen=True)
class Progress:
    """The rows of both tables, in the order of the course."""

    lectures: tuple[Row, ...]
    labs: tuple[Row, ...]

    def to_json(self) -> dict[str, object]:
        """Plain values for ``course progress --json``."""
        return asdict(self)

    def tables(self) -> Iterator[tuple[Sequence[str], Sequence[Sequence[str]]]]:
        """Columns and rows of both tables, with the sums."""
        yield ("lecture", "exercises solved", "hours"), [row[:3] for row in _with_sum("all lectures", self.lectures)]
        yield ("lab", "files written", "hours", "worth (points)"), _with_sum("all labs", self.labs)

    @property
    def next_row(self) -> Row | None:
        """The first lecture with an unsolved exercise, then the first lab without all of its files."""
        return next((row for row in (*self.lectures, *self.labs) if row.done < row.count), None)

    @property
    def next_step(self) -> str:
        """In a few words."""
        return self.next_row.title if self.next_row else "`course check LAB` says whether the files are right"

    @property
    def next_link(self) -> Markup | str:
        """The same for a notebook of the course."""
        return _link(self.next_row.page, self.next_step) if self.next_row else self.next_step

    def _repr_html_(self) -> str:
        from markupsafe import Markup

        pages = [[_link(row.page, row.title) for row in rows] for rows in (self.lectures, self.labs)]
        text = Markup("<p><b>Next: {}</b></p>").format(self.next_link)
        for (columns, rows), links in zip(self.tables(), pages, strict=True):
            styles = dict(zip(columns, (LEFT, LEFT, RIGHT, RIGHT), strict=False))
            cells = [(link, _bar(row[1]), *row[2:]) for link, row in zip([*links, rows[-1][0]], rows, strict=True)]
            text += Markup(notebook_table("", styles, [({}, row) for row in cells]))
        return text


def _with_sum(name: str, rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Titles, what is done of how much, hours and points as texts, with a last row of all."""
    sums = (sum(values) for values in zip(*((row.done, row.count, row.minutes, row.points) for row in rows), strict=True))
    return [
        (row.title, f"{row.done} of {row.count}", f"{row.minutes / 60:.1f}", f"{row.points:g}")
        for row in (*rows, Row(name, "", *sums))
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
    bar = "display:inline-block;width:4em;height:.6em;background:#8884"
    return Markup('<span style="white-space:nowrap"><span style="{}"><span style="{}"></span></span> {}</span>').format(
        bar, filled, share
    )


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
        lectures.append(Row(title, page, sum(one.id in solved for one in exercises), len(exercises), minutes))
    return Progress(tuple(lectures), tuple(_lab_row(labs.find(name), root) for name in labs.names()))


def show_progress() -> None:
    """Print the progress of this user; the start page calls it, and shows tables with links."""
    from course_lib.cli import console

    found = progress_of()
    if in_notebook():
        from IPython.display import display

        display(found)
        return
    for columns, rows in found.tables():
        console.table("", columns, rows)
    print(f"next: {found.next_step}")  # last, where a terminal of 24 lines shows it


def _lab_row(lab: Lab, root: Path | None) -> Row:
    written = sum((root / "labs" / lab.name / file).exists() for file in lab.artifacts) if root else 0
    minutes, cells = 0, cells_of(lab, root)
    with suppress(TypeError):  # a learner may have damaged the notebook
        minutes = next(filter(None, (_minutes(cell.get("source", "")) for cell in cells)), 0)
    points = sum(task.points for task in lab.tasks) + written_points(cells)
    return Row(lab.title, f"labs/{lab.name}/{lab.name}.ipynb", written, len(lab.artifacts), minutes, points)


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
            return f"Lecture {''.join(source).splitlines()[0].lstrip('# ').replace('. ', ': ', 1)}", page, _minutes(source)
        except (OSError, ValueError, LookupError, TypeError, RecursionError):  # a reader may have damaged a notebook
            return f"Lecture {number}", page, 0
    return f"Lecture {number}", "lectures/00_start_here.ipynb", 0
