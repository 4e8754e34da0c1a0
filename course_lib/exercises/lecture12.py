"""Exercises of lecture 12: idle time, gaps, self time, the bandwidth of copies, the roof of a kernel, and a bound of a gain."""

from __future__ import annotations

import math
import sqlite3
from contextlib import closing
from pathlib import Path

import course_lib
from course_lib.exercises.comparing import same, shown
from course_lib.exercises.exercise import Answer, Case, Exercise, NotYet

_WORK = [(30, 60), (0, 10), (40, 50), (55, 70)]
_DEVICE = [(0, 10), (20, 30), (60, 70), (75, 80)]
_HOST = [("launch", 5, 31), ("preprocess", 31, 52), ("launch", 52, 58), ("wait", 60, 120)]
_MANY = [("copy", 28, 42), ("launch", 42, 50), ("launch", 51, 60)]
_CALLS = [("conv2d", 0, 100), ("convolution", 5, 95), ("_convolution", 10, 90), ("mkldnn", 20, 80), ("relu", 100, 120)]
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


EXERCISES = (
    Exercise(
        id="12.1",
        title="The idle share of a device",
        minutes=12,
        difficulty=2,
        importance=3,
        call="idle_share(work, start, end)",
        hint="Draw the intervals on a line. Which parts of the line are covered by at least one of them?",
        cases=(
            Case(
                (_WORK, 0, 120),
                70 / 120,
                {
                    "That is the busy share. The idle share is the rest.": 50 / 120,
                    "You added the durations. Two streams work at the same time here, and this time counts once.": 55 / 120,
                    "(40, 50) ends before (30, 60) does: compare with the latest end so far, not with the last interval.": 75
                    / 120,
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
    ),
    Exercise(
        id="12.2",
        title="The longest gap, and what the host did",
        minutes=12,
        difficulty=2,
        importance=3,
        call="longest_gap(work, host)",
        hint="Find the gap first. Then compute for each event of the host how much of it lies inside the gap.",
        cases=(
            Case(
                (_DEVICE, _HOST),
                (30, 60, "preprocess"),
                {
                    "`wait` is the longest event, and it is outside the gap. Only the part inside counts.": (30, 60, "wait"),
                    "`launch` was running when the gap began, and most of it was over. Compare the time inside the gap.": (
                        30,
                        60,
                        "launch",
                    ),
                    "That is the first gap. Return the longest.": (10, 20, "launch"),
                    "From 70 to 75 is the shortest gap: use `max`, with the length of a gap as its key.": (70, 75, "wait"),
                },
            ),
            Case(
                (_DEVICE, _MANY),
                (30, 60, "launch"),
                {"Two launches have 17 us together, more than the copy: add up the time of each name.": (30, 60, "copy")},
            ),
        ),
    ),
    Exercise(
        id="12.3",
        title="Self time",
        minutes=15,
        difficulty=3,
        importance=1,
        call="self_times(spans)",
        hint="Follow the spans in the order of their start, with a list of those that are still open.",
        cases=(
            Case(
                (_CALLS,),
                {"conv2d": 10, "convolution": 10, "_convolution": 20, "mkldnn": 60, "relu": 20},
                {
                    "Those are total times. They count one convolution four times.": {
                        "conv2d": 100,
                        "convolution": 90,
                        "_convolution": 80,
                        "mkldnn": 60,
                        "relu": 20,
                    },
                    "You subtracted everything below a span. Its direct children already contain the rest.": {
                        "conv2d": -130,
                        "convolution": -50,
                        "_convolution": 20,
                        "mkldnn": 60,
                        "relu": 20,
                    },
                    "`relu` begins when `conv2d` ends, so it was not called by it: close a span that ends at this start.": {
                        "conv2d": -10,
                        "convolution": 10,
                        "_convolution": 20,
                        "mkldnn": 60,
                        "relu": 20,
                    },
                },
            ),
            Case(
                ([("step", 0, 10), ("op", 1, 4), ("op", 5, 9)],),
                {"step": 3, "op": 7},
                {
                    "The name `op` occurs twice: add up its times.": {"step": 3, "op": 4},
                    "`step` made two calls: subtract both.": {"step": 7, "op": 7},
                },
            ),
        ),
    ),
    Exercise(
        id="12.4",
        title="The bandwidth of copies, from an export",
        minutes=10,
        difficulty=1,
        importance=2,
        call="copy_bandwidth(database, kind)",
        hint="Select the sum of the bytes and the sum of the durations, and divide them.",
        examine=_copies_of_the_record,
    ),
    Exercise(
        id="12.5",
        title="How far below the roof?",
        minutes=10,
        difficulty=2,
        importance=2,
        call="roof(operations, bytes_moved, seconds, peak_operations, peak_bytes)",
        hint="Compute the two least times, operations over peak and bytes over peak. The longer one is the roof.",
        cases=(
            Case(
                (1000, 80, 10, 1000, 10),
                ("memory", 0.8),
                {
                    "That is the share of the arithmetic peak. The roof of this kernel is the slope, which is lower.": (
                        "latency",
                        0.1,
                    ),
                    "That is how many times it is slower than the roof. A share is at most 1.": ("memory", 1.25),
                    "You added the two times. A kernel loads and computes at the same time.": ("memory", 0.9),
                    "The bytes take 8 s at the peak, the operations 1 s: the longer time is the limit.": ("arithmetic", 0.8),
                },
            ),
            Case(
                (9000, 20, 10, 1000, 10),
                ("arithmetic", 0.9),
                {
                    "This kernel has 450 operations for each byte, and the ridge is at 100: arithmetic is the limit.": (
                        "memory",
                        0.9,
                    ),
                    "That is the share of the bandwidth. This kernel is below the flat part of the roof.": ("latency", 0.2),
                },
            ),
            Case(
                (1000, 30, 10, 1000, 10),
                ("latency", 0.3),
                {"It reaches 30 % of its roof. Below 60 % of both peaks, neither of them is the limit.": ("memory", 0.3)},
            ),
        ),
    ),
    Exercise(
        id="12.6",
        title="The largest possible gain",
        minutes=5,
        difficulty=1,
        importance=3,
        call="gain(parts_ms, name, factor)",
        hint="Write the new total: all other parts as before, and this part divided by the factor.",
        cases=(
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
    ),
)
