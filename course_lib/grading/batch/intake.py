"""The input of grading: only this module checks ids of learners, names of files, and times of submission; `collection` finds them.

An id becomes the name of folders and files, a pattern for nbgrader, a cell of a table, and a line on a terminal. An id that is
invalid for one of these is rejected here with a reason, before any other code reads it.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

TIMESTAMP = "timestamp.txt"
MOST_CHARACTERS, MOST_BYTES = 100, 200  # of an id; a file system takes 255 bytes for a name, and the journal adds to it
_SHOWN = 60  # characters of a rejected name that a line shows
_ALSO_IN_AN_ID = frozenset(" ._-@+'")
_TAKEN = (".html", ".json", ".log")  # names of this kind in ``reports/`` are the class report's
_TIME = re.compile(r"(\d{4}-\d\d-\d\d[ T]\d\d:[\d:.,]+) ?([+-][\d:]+)?([A-Za-z][\w+/-]*)?", re.ASCII)


@dataclass(frozen=True)
class Rejected:
    """A folder or file that is not graded: its name in ASCII, safe to print, and the reason."""

    shown: str
    reason: str

    def __str__(self) -> str:
        return f"{self.shown}: {self.reason}"

    def to_json(self) -> dict[str, str]:
        """Plain JSON values."""
        return {"submission": self.shown, "reason": self.reason}


@dataclass(frozen=True)
class Intake:
    """The submissions of a lab: sorted ids that can be graded, and every folder and file that is not graded."""

    students: tuple[str, ...]
    rejected: tuple[Rejected, ...] = ()


def shown(name: str) -> str:
    """A name as one line of ASCII, in quotes and cut to 60 characters: safe for terminals, tables and JSON."""
    quoted = ascii(name)
    return quoted if len(quoted) <= _SHOWN else f"{quoted[: _SHOWN - 4]}...{quoted[-1]}"


def id_problem(name: str) -> str:
    """Why a name cannot be the id of a learner, in one line of ASCII; "" if it can.

    Letters and digits of every script are allowed, and between them ``._-@+'`` and single spaces.

    >>> id_problem("zoë.müller@example.org"), id_problem("a[1]")
    ('', 'the name contains "[": rename the folder with letters, digits and ._-@+')
    """
    advice = "rename the folder with letters, digits and ._-@+"
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return f"the name is not UTF-8: {advice}"
    if not name or len(name) > MOST_CHARACTERS or size > MOST_BYTES:
        found, most = f"{len(name)} characters in {size} bytes", f"{MOST_CHARACTERS} in {MOST_BYTES}"
        return f"the name has {found}: rename the folder, at most {most} are allowed"
    if bad := next((one for one in name if one not in _ALSO_IN_AN_ID and unicodedata.category(one)[0] not in "LMN"), ""):
        return f"the name contains {_described(bad)}: {advice}"
    if not (name[0].isalnum() or name[0] == "_"):
        return f"the name begins with {_described(name[0])}: rename the folder, the first character must be a letter or a digit"
    if name[-1] in " ." or "  " in name:
        return f"the name has a space or a dot at its end, or two spaces: {advice}"
    if name.lower().endswith(_TAKEN):
        return f"the name ends with {name[name.rindex('.') :].lower()}, like the files of the class report: rename the folder"
    return ""


def is_usual_name(name: str) -> bool:
    """Whether every file system and every text can hold this path, which is relative, with "/" between its parts."""
    parts = [len(part.encode()) for part in name.split("/")] if name.isprintable() else [1001]
    return sum(parts) <= 1000 and max(parts) <= 200


def read_time(content: bytes) -> datetime:
    """The time in a ``timestamp.txt``, in UTC.

    As nbgrader's exchange writes it: a date and a time of ISO 8601, and an offset or a zone of the tz database, by default UTC.

    Raises:
        ValueError: the text is not such a time.
    """
    from zoneinfo import ZoneInfo

    from dateutil.parser import isoparse  # type: ignore[import-untyped]

    found = _TIME.fullmatch(content.decode("utf-8-sig").strip())
    if not found:
        raise ValueError("expected a time such as 2026-05-02 18:00:00 UTC")
    moment, offset, zone = found.groups()
    time: datetime = isoparse(moment + (offset or ""))
    try:
        return (time if offset else time.replace(tzinfo=ZoneInfo("UTC" if zone in (None, "Z") else zone))).astimezone(
            timezone.utc
        )
    except (LookupError, OSError):
        raise ValueError(f"there is no zone {zone} in the tz database") from None
    except OverflowError:
        raise ValueError("the year is out of range") from None


def submission_time(folder: Path) -> tuple[datetime | None, str]:
    """The time in a submission's ``timestamp.txt``, None if there is none, and what is wrong with that file, or ""."""
    try:
        with open(folder / TIMESTAMP, "rb") as file:
            return read_time(file.read(1000)), ""
    except FileNotFoundError:
        return None, ""
    except (OSError, ValueError) as error:
        why = "it is not a text file" if isinstance(error, OSError | UnicodeError) else str(error)
        return None, f"{TIMESTAMP} holds no time ({why}): the time of submission is unknown, and no penalty is computed"


def _described(one: str) -> str:
    """A description of a character, in ASCII."""
    if one.isascii() and one.isprintable():
        return f'"{one}"' if one != '"' else "a quotation mark"
    return f"U+{ord(one):04X} ({unicodedata.name(one, 'a control character').lower()})"
