"""Task 1: two rebuilds of the same layers on a noisy device, in two processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from course_lib.engines.worker.parent import Launcher
from course_lib.labs.framework.criteria import HALF, Criterion
from course_lib.labs.framework.guest import Denied, Failed, started
from course_lib.labs.lab03_tuning.device import Device, Problem, problem
from course_lib.labs.lab03_tuning.judge.words import hint_after
from course_lib.labs.lab03_tuning.recorded_tables import recorded_ms

LAYERS = 30
WITHIN = 0.01  # of the fastest tactic's time
TIME_WITHIN = 0.03  # of the chosen tactic's own time
ENOUGH, AGREE = 27, 25  # of 30 layers
FUNCTION = "fastest"


@dataclass(frozen=True)
class Timed:
    """One layer in one build.

    Attributes:
        problem, listed: the tactics, and the order in which the builder listed them.
        runs: the tactics in the order of their runs.
        tactic, ms: what `fastest` returned.
        said: why that is not a choice, or "".
    """

    problem: Problem
    listed: Sequence[str]
    runs: Sequence[str]
    tactic: str = ""
    ms: float = 0.0
    said: str = ""
    empty: bool = False

    @property
    def over_budget(self) -> bool:
        """Whether a run was asked for after the budget was used up: it has no name."""
        return "" in self.runs

    @property
    def good(self) -> bool:
        """Whether the tactic is as fast as the fastest."""
        return not self.said and self.problem.true_ms[self.tactic] <= (1 + WITHIN) * self.problem.best_ms

    @property
    def of_true_ms(self) -> float:
        """The returned time, relative to the tactic's own."""
        return self.ms / self.problem.true_ms[self.tactic] if not self.said else np.inf


@dataclass(frozen=True)
class Rebuilt:
    """The same layers in two builds."""

    first: Sequence[Timed]
    second: Sequence[Timed]

    @property
    def all(self) -> list[Timed]:
        """Both builds."""
        return [*self.first, *self.second]

    @property
    def agree(self) -> int:
        """Layers for which both builds made the same choice."""
        return sum(not one.said and one.tactic == other.tactic for one, other in zip(self.first, self.second, strict=True))

    def criteria(self) -> tuple[list[Criterion], list[Criterion]]:
        """For all points, and for half of them."""
        good = min(sum(one.good for one in build) for build in (self.first, self.second))
        right = min(sum(abs(one.of_true_ms - 1) <= TIME_WITHIN for one in build) for build in (self.first, self.second))
        rows = (
            ("choices within 1 % of the fastest tactic, in the worse of two builds", good, ENOUGH),
            ("returned times within 3 % of the tactic's own, in the worse of two builds", right, ENOUGH),
            ("layers for which two builds choose the same tactic", self.agree, AGREE),
        )
        full = [
            Criterion(name, f"{found} of {LAYERS}", f"at least {least} of {LAYERS}", found >= least)
            for name, found, least in rows
        ]
        half = [replace(one, needed_for=HALF) for one in full[:2]]
        return full, half


def rebuilt(source: Path, rng: np.random.Generator, launcher: Launcher | None) -> Rebuilt:
    """Ask for a choice for each of the same layers twice, in two processes, with other noise and another order of tactics.

    Raises:
        EngineError: the file fails as a whole, or its process does.
    """
    problems = [problem(float(ms), rng) for ms in rng.choice(recorded_ms(), LAYERS)]
    builds = []
    for _ in range(2):
        with started(source, launcher) as learner:
            found = []
            for one in problems:
                device, listed = Device(one.true_ms, rng), one.listed(rng)
                answer = learner.call(FUNCTION, listed, _limited(device), device.budget)
                found.append(_timed(one, listed, device, answer))
                if found[-1].empty:
                    return Rebuilt(found, found)
            builds.append(found)
    return Rebuilt(*builds)


def _limited(device: Device) -> Any:
    def run(name: Any) -> float:
        if len(device.runs) >= device.budget:
            device.runs.append("")  # so that it is seen, even if the function catches the error
            raise Denied(f"the budget of {device.budget} runs is used up")
        if not isinstance(name, str) or name not in device.true_ms:
            raise Denied(f"the layer has no tactic {str(name)[:40]!r}")
        return device.run(name)

    return run


def _timed(asked: Problem, listed: Sequence[str], device: Device, answer: Any) -> Timed:
    runs = tuple(device.runs)
    if "" in runs:
        return Timed(asked, listed, runs, said=f"fastest asked for more runs than the budget of {device.budget}")
    if isinstance(answer, Failed):
        return Timed(asked, listed, runs, said=f"fastest failed: {answer.line}", empty=answer.empty)
    try:
        tactic, ms = answer
        if tactic not in asked.true_ms or isinstance(ms, bool) or not 0 < float(ms) < 1e9:
            raise ValueError
        return Timed(asked, listed, runs, tactic, float(ms))
    except (TypeError, ValueError, OverflowError):
        return Timed(asked, listed, runs, said=f"fastest returned {str(answer)[:60]}, expected (name of a tactic, ms)")


def described(found: Rebuilt) -> tuple[str, str]:
    """The mistake that explains the answers, in words, with a hint."""
    if wrong := next((one for one in found.all if one.said), None):
        hint = hint_after(
            wrong.said, "Call it in the notebook with the device of the cell above: the same error appears there."
        )
        if wrong.over_budget:
            hint = "Count your runs: how many rounds over all tactics fit into `budget`?"
        return f"{wrong.said}.", hint
    runs, tactics = [one.runs for one in found.all], len(found.first[0].listed)
    fewest = float(np.mean([len(one) for one in runs])) / tactics
    if fewest < 3:
        return (
            f"Each tactic has {fewest:.1f} runs on average.",
            "Which run of a tactic is always too slow? How many runs are left when you drop it, and how far apart are they?",
        )
    if np.mean([_blocks(one) for one in runs]) <= 2.5 * tactics:
        return (
            "All runs of a tactic follow each other.",
            "Another program slows down runs in a row. Which tactics does it meet, if you run all tactics once in each round?",
        )
    ratios = np.array([one.of_true_ms for one in found.all])
    if np.median(ratios) > 1 + TIME_WITHIN:
        return (
            f"The returned times are {100 * (np.median(ratios) - 1):.0f} % above the tactics' own.",
            "Which runs are in your average? Drop the first ones, and take a value that a few slow runs cannot move.",
        )
    good = np.mean([one.good for one in found.all])
    if good < ENOUGH / LAYERS:
        slower = [one.problem.true_ms[one.tactic] / one.problem.best_ms - 1 for one in found.all if not one.good]
        return (
            f"The wrong choices are {100 * np.median(slower):.0f} % slower than the fastest tactic.",
            "How large is your tolerance, and which value represents the runs of a tactic?",
        )
    if found.agree < AGREE:
        return "Each choice is good, and another build makes another one.", _hint_for_ties(found)
    return "", "Which value represents the runs of a tactic: how far do a few slow runs move it?"


def _hint_for_ties(found: Rebuilt) -> str:
    first_listed = [one.tactic == next(name for name in one.listed if _equal(one.problem, name)) for one in found.all]
    if np.mean(first_listed) > 0.9:
        return "The builder lists tactics in another order each time. Which order of names is always the same?"
    return "Some tactics are equally fast, and noise decides among them. Which rule does not depend on noise?"


def _equal(asked: Problem, name: str) -> bool:
    return asked.true_ms[name] <= (1 + WITHIN) * asked.best_ms


def _blocks(runs: Sequence[str]) -> int:
    return 1 + sum(one != other for one, other in pairwise(runs))
