"""Exercises of lecture 12: idle time, gaps, self time, the bandwidth of copies, the roof of a kernel, and a bound of a gain."""

from __future__ import annotations

import math
import sqlite3
from contextlib import closing
from pathlib import Path

import course_lib
from course_lib.exercises.comparing import same, shown
from course_lib.exercises.exercise import Answer, NotYet

_PARTS = {"smooth": 6.0, "cut out": 1.0, "exposure": 2.0, "read": 3.0}

_TO_DEVICE = {
    "That is the mean over the copies. It counts a short copy as much as a long one: divide the sums.": 14.102258609397307,
    "You divided by the time from the first copy to the last. Only the time of the copies counts here.": 2.4732596653919052,
    "That is GiB/s. A GiB is 7 % larger than a GB.": 13.125760805218365,
    "You took the copies of all kinds. Ask for `copyKind`.": 13.811610553720483,
    "Those are bytes per second. A GB has a billion bytes.": 14.093678348382875e9,
    "The times of the export are nanoseconds. Bytes per nanosecond are already GB/s.": 14.093678348382875e-9,
}


def _copies_of_the_record(copy_bandwidth: Answer) -> None:
    """Asks for both directions, in the export that the lecture reads next."""
    export = Path(course_lib.__file__).parent / "records" / "nsys" / "saxpy_mpi_cuda.sqlite"
    with closing(sqlite3.connect(f"{export.as_uri()}?mode=ro", uri=True)) as database:
        for kind, expected, mistakes in ((1, 14.093678348382875, _TO_DEVICE), (2, 13.280042811602858, {})):
            found = copy_bandwidth(database, kind)
            if not same(found, expected):
                otherwise = "Use the parameter `kind`: 1 is to the device, and 2 is to the host."
                hint = next((words for words, value in mistakes.items() if same(found, value)), otherwise)
                raise NotYet(f"`copy_bandwidth(database, {kind})` returned {shown(found)}, expected {shown(expected)}. {hint}")


EXAMINATIONS = {"12.4": _copies_of_the_record}
ARGUMENTS = {
    "12.6": (
        (_PARTS, "read", math.inf),
        (_PARTS, "smooth", 2),
    )
}
