"""A leaderboard by points, then by speed as far as measuring can tell, under names or under pseudonyms."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass

from course_lib.benchmark import Interval
from course_lib.grading.reports.class_report import Submission

# How far the same engine's speed relative to the reference moves between two gradings, beyond the interval of each: 95 of 100 were
# within 2.6 % of their median on a loaded machine (course_lib/records/verdicts_cpu.json).
BETWEEN_SESSIONS = 0.03


@dataclass(frozen=True)
class Place:
    """One row. `name` is what is published: the student's id, or a pseudonym; `speed` is relative to the reference.

    A submission whose grading failed on the grader's side is pending and does not have a rank.
    """

    rank: int | None
    student: str
    name: str
    points: float
    speed: Interval | None


def ranked(submissions: Iterable[Submission], *, key: bytes | None = None) -> tuple[Place, ...]:
    """Best first: by the points that were judged, then by the speed relative to the reference, at the lower end of its interval.

    Submissions are raced in sessions of their own, on machines that differ and are busy at times. The ratio to the reference of the same
    session cancels that, but for `BETWEEN_SESSIONS`. A submission shares a rank with the first of that rank if both have equal points
    and their intervals, each widened by that much, overlap; the next rank counts everybody above it (1, 1, 3). Points given for
    written questions and late penalties stay private, so they do not count here.

    Args:
        key: for pseudonyms in place of names.
    """

    def place(rank: int | None, one: Submission) -> Place:
        name = pseudonym(key, one.student) if key else one.student
        return Place(rank, one.student, name, one.judged, one.of_reference)

    ordered = sorted(
        submissions,
        key=lambda one: (one.ungraded, -one.judged, -one.of_reference.low if one.of_reference else 0.0, one.student),
    )
    places: list[Place] = []
    leader, rank = None, 0
    for number, one in enumerate(ordered, 1):
        if leader is None or not _tied(leader, one):
            leader, rank = one, number
        places.append(place(None if one.ungraded else rank, one))
    if key:  # within a rank, the order would tell more than was measured
        places.sort(key=lambda place: (place.rank is None, place.rank, place.name))
    return tuple(places)


def pseudonym(key: bytes, student: str) -> str:
    """Always the same for a student, and without the key it does not show whose it is.

    Source: HMAC, RFC 2104, with SHA-256, cut to 40 bits.
    """
    digest = hmac.new(key, student.encode(), hashlib.sha256).digest()
    return base64.b32encode(digest[:5]).decode().lower()


def _tied(leader: Submission, one: Submission) -> bool:
    if leader.judged != one.judged:
        return False
    if leader.of_reference is None or one.of_reference is None:
        return leader.of_reference is one.of_reference
    return one.of_reference.high * (1 + BETWEEN_SESSIONS) >= leader.of_reference.low * (1 - BETWEEN_SESSIONS)
