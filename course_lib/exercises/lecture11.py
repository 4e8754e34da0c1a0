"""Exercises of lecture 11: a clock, interleaved rounds, an interval from blocks, decisions, and waiting times."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from course_lib.exercises.comparing import same, shown
from course_lib.exercises.exercise import Answer, NotYet

_CALLS_MS = [50, 20, 10, 4, 2, 3, 2, 9]  # three cold calls, then five warm ones


class _Machine:
    """A machine on which time passes only in calls, so that a measurement has one right result."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.calls = 0

    def call(self) -> None:
        self.now_s += 1e-3 * (_CALLS_MS[self.calls] if self.calls < len(_CALLS_MS) else 9)
        self.calls += 1

    def clock(self) -> float:
        return self.now_s


def _explain(call: str, found: object, expected: float, mistakes: Mapping[str, float], otherwise: str) -> None:
    """Raises: NotYet, with the words of the mistake that returns what was found."""
    if not same(found, expected):
        hint = next((words for words, value in mistakes.items() if same(found, value)), otherwise)
        raise NotYet(f"`{call}` returned {shown(found)}, expected {shown(expected)}. {hint}")


def _measured(median_ms: Answer) -> None:
    machine = _Machine()
    found = median_ms(machine.call, machine.clock, 3, 5)
    mistakes = {
        "You did not warm up: the first calls take 50, 20 and 10 ms.": 10.0,
        "You recorded the warm-up, too.": 6.5,
        "That is the mean. One slow call moves it.": 4.0,
        "That is the time in seconds. Return milliseconds.": 0.003,
        "That is the fastest call. Almost no call is that fast.": 2.0,
    }
    advice = "Read the clock directly before and directly after each recorded call."
    _explain("median_ms(call, clock, 3, 5)", found, 3.0, mistakes, advice)
    if machine.calls != 8:
        raise NotYet(
            f"`median_ms(call, clock, 3, 5)` made {machine.calls} calls, expected 8: 3 to warm up, and 5 that are recorded."
        )


_LOAD = [1, 1, 1, 1, 3, 3, 3]  # of the machine, in each pair of calls
_NOISE = [20, 22, 18, 24, 160, 19, 20]  # milliseconds of A's calls on the idle machine; B takes 10


class _Shared:
    """Two engines on a machine that becomes busy: its load depends on how many calls were made before."""

    def __init__(self) -> None:
        self.order = ""

    def _load(self, name: str) -> int:
        load = _LOAD[min(len(self.order) // 2, len(_LOAD) - 1)]
        self.order += name
        return load

    def time_a(self) -> float:
        number = min(self.order.count("A"), len(_NOISE) - 1)
        return float(_NOISE[number] * self._load("A"))

    def time_b(self) -> float:
        return 10.0 * self._load("B")


def _interleaved(interleaved_speedup: Answer) -> None:
    machine = _Shared()
    found = interleaved_speedup(machine.time_a, machine.time_b, 7)
    call = "interleaved_speedup(time_a, time_b, 7)"
    if len(machine.order) != 14:
        raise NotYet(f"`{call}` timed {len(machine.order)} calls, expected 14: each engine once in each of 7 rounds.")
    if any(set(machine.order[place : place + 2]) != {"A", "B"} for place in range(0, 14, 2)):
        raise NotYet(
            f"`{call}` timed the engines in the order {machine.order}. The machine became busy on the way, "
            "and only one engine was affected: time both in each round."
        )
    mistakes = {
        "That is the ratio of the medians. Each engine's median comes from another round: compute a ratio in each round.": 2.4,
        "That is the mean of the ratios. One disturbed round moves it.": 4.042857142857143,
        "That is the inverse: A is the baseline, so divide its time by that of B.": 0.5,
        "That is the ratio of the sums. The slowest calls count most in it.": 5.2384615384615385,
    }
    _explain(call, found, 2.0, mistakes, "Collect one ratio in each round, and return the median.")


_RATIOS = np.array([1.1, 1.3, 0.9, 1.6, 1.2, 1.25, 0.8, 1.5, 1.05, 1.4])
_STARTS = np.random.default_rng(11).integers(0, 10, size=(200, 4))

EXAMINATIONS = {"11.1": _measured, "11.2": _interleaved}
ARGUMENTS = {
    "11.3": (
        (_RATIOS, _STARTS, 3),
        (_RATIOS, np.zeros((5, 10), int), 1),
    )
}
