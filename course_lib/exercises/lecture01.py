"""Exercises of lecture 1: launches, the roofline, and Amdahl's law."""

from __future__ import annotations

import math

from course_lib.exercises.exercise import Case

CASES = {
    "1.3": (
        Case(
            (40, 30, 20),
            3.0,
            {
                "That is the factor for the whole request. Only the network becomes faster.": 2.0,
                "You gave the network the whole target. The rest of the request takes 10 of the 20 ms.": 1.5,
                "That is the time that is left for the network. Return a factor.": 10.0,
                "That is the inverse: a faster network has a factor above 1.": 1 / 3,
            },
        ),
        Case(
            (40, 10, 20),
            math.inf,
            {
                "The rest takes 30 ms, which is more than the target: no factor is large enough. Return `float('inf')`.": -1.0,
                "A factor of the network cannot bring the rest below 30 ms. Return `float('inf')`.": 2.0,
                "The target is below the rest of the request, so the answer is not 0. Return `float('inf')`.": 0.0,
            },
        ),
        Case(
            (40, 10, 30),
            math.inf,
            {"The network would have to take no time. Return `float('inf')` here too.": 0.0},
        ),
        Case(
            (40, 10, 50),
            1.0,
            {"The request is fast enough already. A factor below 1 would allow a slower network; return at least 1.": 0.5},
        ),
    )
}
