"""Compute a verdict again from its record, and name what was altered or does not follow from the recorded latencies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from course_lib import labs
from course_lib._util.plain_text import plain
from course_lib.errors import CourseError
from course_lib.grading.integrity import signature
from course_lib.grading.judge.verdict import Verdict, read_document

_CLOSE = 1e-9  # JSON keeps every digit of a float; what differs more was not computed from these latencies


def replaced(verdict: Mapping[str, Any], room: Path) -> list[str]:
    """Whether the classroom has another verdict of this student for this lab, as sentences: only that one counts."""
    own = room / "reports" / str(verdict.get("student")) / f"{verdict['lab']}.json"
    if not own.is_file() or read_document(own) == verdict:
        return []
    return [f"the classroom has another verdict of {verdict.get('student')!r} for this lab: {plain(own)}"]


def owner(document: Mapping[str, Any]) -> str:
    """Whose verdict it is, for what, with how many points and from when, in one line."""
    student, date = document.get("student", "no student"), document["provenance"].get("date", "no date")
    return plain(
        f"{student}, {document['lab']}, {document['score']:g} of the {document['max_score']:g} points of its tasks, {date}", 200
    )


def contradictions(document: Mapping[str, Any], expected_key: str | None = None) -> list[str]:
    """The contradictions in a verdict, as sentences; empty if there are none.

    The function checks the signature, the sum of the points, the tasks and their points against the lab, and every interval
    against its latencies. For labs that judge speed only by the race, it checks the tier against the intervals. The other tasks
    use fresh data; the seed and the digests in the provenance allow a repetition.

    Args:
        expected_key: the classroom's public key in hexadecimal, see `signature.check`.
    """
    try:
        signature.check(dict(document), expected_key)
        found = list(_contradictions(Verdict.from_json(document), document["score"], document["max_score"]))
    except CourseError as error:
        found = [str(error)]
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        found = [f"not a verdict of this course ({type(error).__name__}: {error})"]
    return [plain(sentence) for sentence in found]  # names in it are the document's, and a stranger may have signed that


def _contradictions(verdict: Verdict, score: float, max_score: float) -> Iterator[str]:
    lab = labs.find(verdict.lab)
    points = {task.id: task.points for task in lab.tasks}
    if max_score != verdict.max_score:
        yield f"the verdict says {max_score:g} points can be earned, {lab.name} has {verdict.max_score:g}"
    if verdict.fault:
        if verdict.outcomes or score:
            yield "the examiner failed, so the verdict can hold no points"
        return
    listed = [outcome.task.id for outcome in verdict.outcomes]
    if sorted(listed) != sorted(points):
        yield f"the verdict has the tasks {', '.join(listed)}, {lab.name} has {', '.join(points)}"
    for outcome in verdict.outcomes:
        task = outcome.task
        if points.get(task.id) != task.points:
            yield f"{lab.name} has no task {task.id!r} worth {task.points:g} points"
        if not 0 <= outcome.points <= task.points:
            yield f"{outcome.points:g} of {task.points:g} points for {task.id}"
    if score != verdict.score:
        yield f"the score is {score:g} and the tasks' points do not sum up to it"
    if not (raced := verdict.comparison):
        return
    latencies = raced.latencies()
    for name, recorded in raced.speedups.items():
        found = raced.ratio(raced.baseline, name, seed=0)
        if any(abs(getattr(found, part) / getattr(recorded, part) - 1) > _CLOSE for part in ("median", "low", "high")):
            yield f"the latencies give {name} a speedup of {found}, the verdict says {recorded.median:.2f}x"
    recorded_tier = next((outcome.tier for outcome in verdict.outcomes if outcome.task.id == "speed"), None)
    tier = lab.speed_tier(latencies)
    if tier is not None and recorded_tier not in (None, tier):
        yield f"the latencies give the tier '{tier}' for speed, the verdict says '{recorded_tier}'"
