"""A class of thirty for tests: a gradebook made with nbgrader's own interface, and verdicts of the schema that the judge writes."""

from __future__ import annotations

import copy
import json
import tempfile
import warnings
from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from nbgrader.api import Gradebook
from traitlets.config import Config

from course_lib.grading.batch.classroom import Classroom
from course_lib.grading.judge.judging import judge
from course_lib.grading.judge.verdict import Verdict
from course_lib.grading.nbgrader.bridge import configure
from course_lib.labs import Examiner
from tests import unchanged
from tests.grading.conftest import LAB

DUE = datetime(2026, 5, 1, 12)
WRITTEN = 2.0  # points of the written question


@cache
def real_verdict() -> Verdict:
    """The judge's verdict on lab 01's reference, once for all processes. On a quiet machine its race ends in seconds."""

    def judged() -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            LAB.write_reference(Path(folder))
            found = judge(LAB, Path(folder), examiner=Examiner(measure_s=90), trusted=True)
        return json.dumps(found.to_json()).encode()

    sources = unchanged.imported("from course_lib import grading, labs")
    return Verdict.from_json(json.loads(unchanged.made(unchanged.key("real verdict", files=sources), judged)))


def verdict(
    *,
    tiers: Iterable[str] = ("full", "full", "full"),
    speedup: float = 1.8,
    width: float = 0.05,
    accuracy: float = 0.98,
) -> dict[str, Any]:
    """The real verdict's JSON with other outcomes in it. A speedup of 0: there was no race."""
    found = copy.deepcopy(real_verdict().to_json())
    for row, tier in zip(found["tasks"], tiers, strict=True):
        row["tier"] = tier
        row["points"] = {"full": 1, "partial": 0.5}.get(tier, 0) * row["task"]["points"]
    found["score"] = sum(row["points"] for row in found["tasks"])
    found["figures"]["accuracy"] = accuracy
    found["comparison"]["speedup"]["yours"] = {"median": speedup, "low": speedup - width, "high": speedup + width}
    if not speedup:
        found["comparison"], found["figures"] = None, {}
    return found


def faulty() -> dict[str, Any]:
    """What is written when the examiner itself fails."""
    found = verdict()
    nothing = {"score": 0.0, "tasks": [], "figures": {}, "comparison": None, "table": None, "layers": None}
    return {**found, **nothing, "fault": "the reference cannot be built: out of memory"}


def new_room(root: Path) -> Classroom:
    """An empty classroom whose gradebook knows the lab."""
    (root / "labs" / LAB.name).mkdir(parents=True)
    room = Classroom(root)
    room.folder.mkdir()
    (room.folder / "gradebook.db").write_bytes(_empty_gradebook())
    return room


@cache
def _empty_gradebook() -> bytes:
    """Made once: nbgrader starts a program to make the tables."""
    with tempfile.TemporaryDirectory() as folder:
        room = Classroom(Path(folder))
        configure(Config(), root=room.root)  # makes the folder, and puts that program on the path
        with _gradebook(room) as gradebook:
            gradebook.add_assignment(LAB.name, duedate=DUE)
            gradebook.add_notebook(LAB.name, LAB.name)
            for task in LAB.tasks:
                gradebook.add_grade_cell(task.id, LAB.name, LAB.name, max_score=task.points, cell_type="code")
            gradebook.add_grade_cell("written", LAB.name, LAB.name, max_score=WRITTEN, cell_type="markdown")
        return (room.folder / "gradebook.db").read_bytes()


def put(
    room: Classroom,
    student: str,
    found: dict[str, Any] | None,
    *,
    late: timedelta = timedelta(0),
    penalty: float = 0.0,
    written: float | None = 1.0,
    by_hand: dict[str, float] | None = None,
    **named: str,
) -> None:
    """One graded submission: gradebook and verdict as the bridge leaves them. `written` None: the question waits for its points."""
    tasks = {row["task"]["id"]: row for row in found["tasks"]} if found else {}
    with _gradebook(room) as gradebook, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SQLAlchemy's, about nbgrader
        gradebook.add_student(student, **named)
        gradebook.add_submission(LAB.name, student, timestamp=DUE + late)
        for task in LAB.tasks:
            grade = gradebook.find_grade(task.id, LAB.name, LAB.name, student)
            grade.auto_score = tasks[task.id]["points"] if task.id in tasks else 0.0
            grade.manual_score = (by_hand or {}).get(task.id)
            grade.needs_manual_grade = task.id not in tasks or tasks[task.id]["tier"] == "inconclusive"
        grade = gradebook.find_grade("written", LAB.name, LAB.name, student)
        grade.manual_score, grade.needs_manual_grade = written, written is None
        gradebook.find_submission_notebook(LAB.name, LAB.name, student).late_submission_penalty = penalty
        gradebook.db.commit()
    if found:
        folder = room.folder / "reports" / student
        folder.mkdir(parents=True)
        (folder / f"{LAB.name}.json").write_text(json.dumps(found))


def class_of_30(room: Classroom) -> None:
    """Thirty submissions whose sums are known: 20 have everything, 4 lose at accuracy, 3 have nothing, 2 wait, 1 met a fault."""
    for n in range(20):
        put(room, f"full{n:02}", verdict(speedup=1.5 + n / 20, accuracy=0.98))
    for n in range(4):
        late = {"late": timedelta(hours=30), "penalty": 1.5} if n < 2 else {}
        put(
            room,
            f"part{n}",
            verdict(tiers=("full", "partial", "full"), accuracy=0.96),
            **late,
        )
    for n in range(3):
        put(room, f"none{n}", verdict(tiers=("none",) * 3, speedup=0), written=0.0)
    put(room, "unsure", verdict(tiers=("full", "full", "inconclusive")))
    put(room, "writer", verdict(), written=None)
    put(room, "unlucky", faulty())


def _gradebook(room: Classroom) -> Gradebook:
    return Gradebook(f"sqlite:///{room.folder / 'gradebook.db'}")
