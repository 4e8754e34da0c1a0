"""Exercises of lecture 11: a clock, interleaved rounds, an interval from blocks, decisions, and waiting times."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from course_lib.exercises.comparing import same, shown
from course_lib.exercises.exercise import Answer, Case, Exercise, NotYet

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

EXERCISES = (
    Exercise(
        id="11.1",
        title="A measurement by hand",
        minutes=8,
        difficulty=1,
        importance=3,
        call="median_ms(call, clock, warmup, calls)",
        hint="Two loops: one that only calls, and one that also reads the clock.",
        examine=_measured,
    ),
    Exercise(
        id="11.2",
        title="Interleaved rounds",
        minutes=8,
        difficulty=2,
        importance=3,
        call="interleaved_speedup(time_a, time_b, rounds)",
        hint="One round is one call of each. Its ratio comes from these two calls alone.",
        examine=_interleaved,
    ),
    Exercise(
        id="11.3",
        title="An interval from blocks",
        minutes=15,
        difficulty=3,
        importance=2,
        call="block_interval(ratios, starts, block)",
        hint="Write the indices of one resample for `starts[0] = [8, 2]` and a block of 3.",
        cases=(
            Case(
                (_RATIOS, _STARTS, 3),
                (1.075, 1.325),
                {
                    "You drew single rounds. A block is `block` neighbors: start, start + 1, and so on.": (0.949375, 1.5),
                    "You did not cut the resample. With more rounds than were measured, the interval is too narrow.": (
                        1.099375,
                        1.300625,
                    ),
                    "You took the mean of each resample. The result is an interval of the median.": (1.109875, 1.315),
                    "That is the middle 90 %. For 95 %, leave out 2.5 % at each end.": (1.09875, 1.3),
                    "That is the whole range. Leave out 2.5 % at each end.": (1.05, 1.4),
                    "A block that reaches the end continues at the beginning: use `%`.": (1.075, 1.4),
                    "`np.percentile` expects percent, 2.5 and 97.5, not shares.": (1.05124375, 1.075),
                },
                shown="block_interval(ratios, starts, 3)",
            ),
            Case((_RATIOS, np.zeros((5, 10), int), 1), (1.1, 1.1), shown="block_interval(ratios, ten times start 0, 1)"),
        ),
    ),
    Exercise(
        id="11.4",
        title="Is the threshold reached?",
        minutes=4,
        difficulty=1,
        importance=2,
        call="decision(low, high, threshold)",
        hint="Draw the interval and the threshold on a line. On which side is the whole interval?",
        cases=(
            Case(
                (1.05, 1.3, 1.1),
                "undecided",
                {
                    "The middle is above the threshold, and a part of the interval is below. Measure longer.": "reached",
                    "The interval contains values above the threshold, so it is not proved that it was missed.": "missed",
                },
            ),
            Case(
                (0.98, 1.06, 1.0),
                "undecided",
                {
                    "The interval allows a loss of 2 %. The upper end alone does not decide.": "reached",
                    "The interval allows a gain of 6 %. The lower end alone does not decide.": "missed",
                },
            ),
            Case(
                (1.12, 1.3, 1.1),
                "reached",
                {"The whole interval is above the threshold, so this is decided.": "undecided"},
            ),
            Case(
                (0.9, 1.05, 1.1),
                "missed",
                {
                    "The interval contains 1, which is not the threshold. All of it is below 1.1.": "undecided",
                    "No value of this interval reaches 1.1.": "reached",
                },
            ),
            Case((1.1, 1.2, 1.1), "reached", {"The lower end equals the threshold, which is enough: use `>=`.": "undecided"}),
        ),
    ),
    Exercise(
        id="11.5",
        title="Waiting times in a queue",
        minutes=10,
        difficulty=2,
        importance=3,
        call="response_times(gaps_ms, calls_ms)",
        hint="When is request i - 1 finished, counted from the arrival of request i?",
        cases=(
            Case(
                ([0, 5, 5, 50], [10, 20, 10, 4]),
                [10, 25, 30, 4],
                {
                    "A request cannot wait for less than 0 ms: the last one finds an idle engine.": [10, 25, 30, -16],
                    "Those are the waiting times. A response also contains the call.": [0, 5, 20, 0],
                    "You ignored the queue, as a client does that waits for each answer before it sends the next request.": [
                        10,
                        20,
                        10,
                        4,
                    ],
                    "Those are the times since the start. A response begins with the arrival of its request.": [10, 30, 40, 64],
                    "A request waits for the call before it, not for its own.": [10, 35, 30, 4],
                },
            ),
            Case(
                ([0, 10], [10, 10]),
                [10, 10],
                {"The second request comes when the first is finished, so it does not wait.": [10, 20]},
            ),
        ),
    ),
)
