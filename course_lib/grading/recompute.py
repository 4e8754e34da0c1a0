"""A verdict computed again from its record: what does not follow from the latencies in it, or has been altered, is named."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from course_lib import labs
from course_lib.benchmark import speedup
from course_lib.errors import CourseError
from course_lib.grading import signature

_CLOSE = 1e-9  # JSON keeps every digit of a float; what differs more was not computed from these latencies


def contradictions(document: Mapping[str, Any], expected_key: str | None = None) -> list[str]:
    """What is wrong with a verdict, as sentences; empty where it holds.

    Checked are the signature, the sum of the points, the tasks and what they are worth against the lab's own, every interval against
    the latencies it was computed from, and, for the labs that judge speed by the race alone, the tier against the intervals. The
    other tasks rest on fresh data: the seed and the digests in the provenance repeat them.

    Args:
        document: the JSON beside a report.
        expected_key: the classroom's public key in hexadecimal, see `signature.check`.
    """
    try:
        signature.check(dict(document), expected_key)
        return list(_contradictions(document))
    except CourseError as error:
        return [str(error)]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return [f"the verdict is not one of this course's ({type(error).__name__}: {error})"]


def _contradictions(document: Mapping[str, Any]) -> Iterator[str]:
    lab = labs.find(document["lab"])
    points = {task.id: task.points for task in lab.tasks}
    if document["fault"]:
        if document["tasks"] or document["score"]:
            yield "the examiner failed, so the verdict can hold no points"
        return
    listed = [row["task"]["id"] for row in document["tasks"]]
    if missing := [task for task in points if task not in listed]:
        yield f"the tasks {', '.join(missing)} of {lab.name} are missing"
    if twice := sorted({task for task in listed if listed.count(task) > 1}):
        yield f"the tasks {', '.join(twice)} are listed more than once"
    if document["max_score"] != sum(points.values()):
        yield f"the verdict says {document['max_score']:g} points can be earned, {lab.name} has {sum(points.values()):g}"
    for row in document["tasks"]:
        if points.get(row["task"]["id"]) != row["task"]["points"]:
            yield f"{lab.name} has no task {row['task']['id']!r} worth {row['task']['points']:g} points"
        if not 0 <= row["points"] <= row["task"]["points"]:
            yield f"{row['points']:g} of {row['task']['points']:g} points for {row['task']['id']}"
    if document["score"] != sum(row["points"] for row in document["tasks"]):
        yield f"the score is {document['score']:g} and the tasks' points do not sum up to it"
    if not (raced := document["comparison"]):
        return
    latencies = {name: np.array(series) for name, series in raced["latencies_ms"].items()}
    for name, recorded in raced["speedup"].items():
        found = speedup(latencies[raced["baseline"]], latencies[name], seed=0)
        if any(abs(getattr(found, part) / recorded[part] - 1) > _CLOSE for part in ("median", "low", "high")):
            yield f"the latencies give {name} a speedup of {found}, the verdict says {recorded['median']:.2f}x"
    tier, recorded_tier = lab.speed_tier(latencies), {row["task"]["id"]: row["tier"] for row in document["tasks"]}.get("speed")
    if tier is not None and recorded_tier is not None and tier != recorded_tier:
        yield f"the latencies give the tier {tier!r} for speed, the verdict says {recorded_tier!r}"
