"""A class on one lab, read from the gradebook and the verdicts: who reached what, who needs an instructor, which files are alike."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from course_lib.benchmark import Interval, speedup
from course_lib.errors import CourseError
from course_lib.grading.classroom import Classroom
from course_lib.grading.similarity import Alike, alike, digests
from course_lib.labs import Lab

TIERS = ("full", "partial", "none", "inconclusive", "ungraded")
# what a lab's figures call the quality of its answers, the first that is there, with what an axis says
_QUALITIES = {
    "accuracy": "accuracy",
    "mean_ap": "mean average precision",
    "sqnr_db": "signal-to-noise ratio of the logits (dB)",
}


@dataclass(frozen=True)
class TaskResult:
    """One task of one hand-in: the verdict's tier (``"ungraded"`` where the examiner failed) and the gradebook's points."""

    id: str
    title: str
    tier: str
    points: float
    max_points: float


@dataclass(frozen=True)
class HandIn:
    """One graded hand-in.

    Attributes:
        student: the id, which is the name of the folder.
        first_name, last_name, email: as far as the gradebook knows them.
        tasks: of the lab, in its order.
        score, max_score: all points of the gradebook, those given by hand included, before the penalty.
        penalty: points taken off because it was late.
        late_s: how late, in seconds.
        waiting: why an instructor has to look, one reason a line; empty when nothing waits.
        quality: the first of accuracy, mean average precision and signal-to-noise ratio that the lab measures.
        speedup: over the race's baseline, None where nothing was raced.
        of_reference: speed relative to the reference of the same session, None where none was raced. A machine that is slow on the
            day slows both, so this compares hand-ins that were graded at different times.
        sha256: digests of the files that were judged, by name.
    """

    student: str
    tasks: tuple[TaskResult, ...]
    score: float
    max_score: float
    penalty: float = 0.0
    late_s: float = 0.0
    first_name: str = ""
    last_name: str = ""
    email: str = ""
    waiting: tuple[str, ...] = ()
    quality: float | None = None
    speedup: Interval | None = None
    of_reference: Interval | None = None
    sha256: Mapping[str, str] = field(default_factory=dict)

    @property
    def final(self) -> float:
        """What counts: the score less the penalty."""
        return max(0.0, self.score - self.penalty)

    @property
    def judged(self) -> float:
        """Points of the lab's tasks alone, without written questions and penalty."""
        return sum(task.points for task in self.tasks)


@dataclass(frozen=True)
class ClassReport:
    """A class on one lab.

    Attributes:
        hand_ins: by student.
        ungraded: who handed in but is not in the gradebook yet.
        missing: who is in the gradebook and handed nothing in.
        quality: what `HandIn.quality` is, for an axis; "" where the lab measures none.
        baseline: what speedups are over; "" where nothing was raced.
        alike: identical files, the telling ones first.
    """

    lab: str
    title: str
    hand_ins: tuple[HandIn, ...]
    ungraded: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    quality: str = ""
    baseline: str = ""
    alike: tuple[Alike, ...] = ()

    @property
    def waiting(self) -> tuple[HandIn, ...]:
        """Hand-ins that an instructor has to look at."""
        return tuple(one for one in self.hand_ins if one.waiting)

    @property
    def late(self) -> tuple[HandIn, ...]:
        """Hand-ins after the due date, with or without a penalty."""
        return tuple(one for one in self.hand_ins if one.late_s > 0)

    def difficulty(self) -> dict[str, dict[str, float]]:
        """For each task the share of hand-ins in each of `TIERS`, by the task's title."""
        counts: dict[str, Counter[str]] = {}
        for task in (task for one in self.hand_ins for task in one.tasks):
            counts.setdefault(task.title, Counter())[task.tier] += 1
        return {title: {tier: found[tier] / found.total() for tier in TIERS} for title, found in counts.items()}

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        known = asdict(self)
        for row, one in zip(known["hand_ins"], self.hand_ins, strict=True):
            row["final"] = one.final
        return known | {"difficulty": self.difficulty()}


def read(lab: Lab, room: Classroom) -> ClassReport:
    """Collect what is known of a lab.

    Raises:
        CourseError: nothing of this lab was graded here, or a verdict cannot be read.
    """
    from nbgrader.api import Gradebook, MissingEntry

    database = room.folder / "gradebook.db"
    nothing = f"nothing of {lab.name} was graded in {room.folder}: `course grade {lab.name}` comes first"
    if not database.is_file():
        raise CourseError(nothing)
    with Gradebook(f"sqlite:///{database}") as gradebook:
        try:
            submissions = sorted(gradebook.assignment_submissions(lab.name), key=lambda one: one.student.id)
        except MissingEntry:
            raise CourseError(nothing) from None
        verdicts = {one.student.id: _verdict(room, lab, one.student.id) for one in submissions}
        quality = _quality(verdicts.values())
        hand_ins = tuple(_hand_in(lab, one, verdicts[one.student.id], quality) for one in submissions)
        known = {student.id for student in gradebook.students}
    if not hand_ins:
        raise CourseError(nothing)
    graded = {one.student for one in hand_ins}
    handed_in = set(room.students(lab))
    races = [verdict["comparison"]["baseline"] for verdict in verdicts.values() if verdict.get("comparison")]
    return ClassReport(
        lab.name,
        lab.title,
        hand_ins,
        ungraded=tuple(sorted(handed_in - graded)),
        missing=tuple(sorted(known - graded - handed_in)),
        quality=_QUALITIES.get(quality, ""),
        baseline=races[0] if races else "",
        alike=alike({one.student: one.sha256 for one in hand_ins}, given=digests(room.root / "labs" / lab.name)),
    )


def _verdict(room: Classroom, lab: Lab, student: str) -> dict[str, Any]:
    path = room.folder / "reports" / student / f"{lab.name}.json"
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        found = None
    if not isinstance(found, dict) or "tasks" not in found:
        raise CourseError(f"{path} is no verdict: grade {student} again")
    return found


def _quality(verdicts: Any) -> str:
    names = {name for verdict in verdicts for name in verdict.get("figures", {})}
    return next((name for name in _QUALITIES if name in names), "")


def _hand_in(lab: Lab, submission: Any, verdict: Mapping[str, Any], quality: str) -> HandIn:
    tiers = {row["task"]["id"]: row for row in verdict.get("tasks", ())}
    grades = {grade.name: grade for notebook in submission.notebooks for grade in notebook.grades}
    speed = ((verdict.get("comparison") or {}).get("speedup") or {}).get("yours")
    student = submission.student
    return HandIn(
        student.id,
        tuple(
            TaskResult(
                task.id,
                task.title,
                tiers[task.id]["tier"] if task.id in tiers else "ungraded",
                grades[task.id].score if task.id in grades else 0.0,
                task.points,
            )
            for task in lab.tasks
        ),
        score=submission.score,
        max_score=submission.max_score,
        penalty=submission.late_submission_penalty,
        late_s=submission.total_seconds_late,
        first_name=student.first_name or "",
        last_name=student.last_name or "",
        email=student.email or "",
        waiting=tuple(_reasons(lab, grades, tiers, verdict)),
        quality=verdict.get("figures", {}).get(quality),
        speedup=Interval(**speed) if speed else None,
        of_reference=_of_reference(verdict),
        sha256=verdict.get("provenance", {}).get("sha256", {}),
    )


def _of_reference(verdict: Mapping[str, Any]) -> Interval | None:
    latencies = (verdict.get("comparison") or {}).get("latencies_ms", {})
    if not {"reference", "yours"} <= latencies.keys():
        return None
    return speedup(np.array(latencies["reference"]), np.array(latencies["yours"]), seed=0)


def _reasons(lab: Lab, grades: Mapping[str, Any], tiers: Mapping[str, Any], verdict: Mapping[str, Any]) -> Iterator[str]:
    """Why formgrader shows this hand-in as one that needs grading by hand."""
    if not verdict:
        yield "no verdict: grade this hand-in again"
    elif verdict["fault"]:
        yield f"the examiner failed: {verdict['fault']}"
    titles = {task.id: task.title for task in lab.tasks}
    for name, grade in grades.items():
        if not grade.needs_manual_grade or (name in titles and name not in tiers):
            continue
        if grade.manual_score is not None:
            yield f"{titles.get(name, name)}: points were given by hand before the last grading, look whether they still fit"
        elif name in titles:
            yield f"{titles[name]}: inconclusive. {tiers[name]['message']}"
        else:
            yield f"written question {name!r} waits for points"
