"""A leaderboard by points, then by speed as far as measuring can tell, under names or under pseudonyms."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from course_lib.benchmark import Interval
from course_lib.errors import CourseError
from course_lib.grading.class_report import HandIn

_KEY_BYTES = 32


@dataclass(frozen=True)
class Place:
    """One row. `name` is what is published: the student's id, or a pseudonym."""

    rank: int
    student: str
    name: str
    points: float
    speedup: Interval | None


def ranked(hand_ins: Iterable[HandIn], *, key: bytes | None = None) -> tuple[Place, ...]:
    """Best first: by the points that were judged, then by the lower end of the speedup's interval, not by a lucky median.

    Who has as many points as the best of a rank, and an interval that overlaps with that one's, shares the rank; the next rank counts
    everybody above it (1, 1, 3). Points given for written questions and late penalties stay private, so they do not count here.

    Args:
        key: for pseudonyms in place of names.
    """
    ordered = sorted(hand_ins, key=lambda one: (-one.judged, -_low(one), one.student))
    places: list[Place] = []
    leader, rank = None, 0
    for number, one in enumerate(ordered, 1):
        if leader is None or not _tied(leader, one):
            leader, rank = one, number
        name = pseudonym(key, one.student) if key else one.student
        places.append(Place(rank, one.student, name, one.judged, one.speedup))
    if key:  # within a rank, the order would tell more than was measured
        places.sort(key=lambda place: (place.rank, place.name))
    return tuple(places)


def pseudonym(key: bytes, student: str) -> str:
    """Always the same for a student, and nobody without the key can tell whose it is.

    Source: HMAC, RFC 2104, with SHA-256, cut to 40 bits.
    """
    digest = hmac.new(key, student.encode(), hashlib.sha256).digest()
    return base64.b32encode(digest[:5]).decode().lower()


def own_key(folder: Path) -> bytes:
    """The classroom's key, made at the first use; only its owner may read the file.

    Raises:
        CourseError: the file is damaged.
    """
    path = folder / "leaderboard.key"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        pass
    else:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(_KEY_BYTES))
    key = path.read_bytes()
    if len(key) != _KEY_BYTES:
        raise CourseError(
            f"{path} should hold {_KEY_BYTES} bytes and holds {len(key)}: remove it, and pseudonyms are drawn anew"
        )
    return key


def _low(one: HandIn) -> float:
    return one.speedup.low if one.speedup else 0.0


def _tied(leader: HandIn, one: HandIn) -> bool:
    if leader.judged != one.judged:
        return False
    if leader.speedup is None or one.speedup is None:
        return leader.speedup is one.speedup
    return one.speedup.high >= leader.speedup.low
