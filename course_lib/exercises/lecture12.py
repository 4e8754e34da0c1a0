"""Exercises of lecture 12: idle time, gaps, self time, the bandwidth of copies, the roof of a kernel, and a bound of a gain."""

from __future__ import annotations

import math
import sqlite3
from contextlib import closing
from pathlib import Path

import course_lib
from course_lib.exercises.comparing import same, shown
from course_lib.exercises.exercise import Answer, Case, NotYet

_WORK = [(30, 60), (0, 10), (40, 50), (55, 70)]
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
CASES = {
    "12.1": (
        Case(
            (_WORK, 0, 120),
            70 / 120,
            {
                "That is the busy share. The idle share is the rest.": 50 / 120,
                "You added the durations. Two streams work at the same time here, and this time counts once.": 55 / 120,
                "(40, 50) ends before (30, 60) does: compare with the latest end so far, not with the last interval.": 75 / 120,
                "The device is also idle from its last work to `end`.": 20 / 120,
                "That is a time in microseconds. Divide it by the length of the window.": 70.0,
            },
        ),
        Case(
            ([(-20, 10), (90, 150)], 0, 100),
            0.8,
            {
                "This work begins before the window, or ends after it: only its part inside counts.": 0.1,
                "The last work ends after the window, at 150. The window ends at 100.": 0.3,
            },
        ),
        Case(([], 0, 100), 1.0, {"Without any work the device is idle all the time.": 0.0}),
    ),
    "12.6": (
        Case(
            (_PARTS, "read", math.inf),
            12 / 9,
            {
                "That is the share of this part. Return how many times as fast the program becomes.": 0.25,
                "That is the inverse: a gain is above 1.": 0.75,
                "That is the factor of the part alone. The other parts stay as slow as they are.": math.inf,
                "You added the parts that remain, and did not compare them with the total before.": 9.0,
            },
        ),
        Case(
            (_PARTS, "smooth", 2),
            12 / 9,
            {
                "You removed the part. A factor of 2 leaves half of it.": 2.0,
                "You doubled the part. Divide it by the factor.": 12 / 18,
            },
        ),
    ),
}
