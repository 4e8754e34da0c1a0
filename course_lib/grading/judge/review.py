"""What an instructor must review, why, and how many points are still open. All output uses `Review.of`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from course_lib.grading.judge.verdict import Verdict
from course_lib.labs import Lab
from course_lib.labs.framework.criteria import JUDGE_FAILED, NOT_EXAMINED, UNUSUAL, Tier

# Values of `Reason.code`; those of an outcome that is inconclusive for a cause of its own come first.
_CAUSES = {NOT_EXAMINED: "not examined", UNUSUAL: "an unusual result", JUDGE_FAILED: "the examiner failed"}
INCONCLUSIVE, FAULT, NO_VERDICT, UNGRADED, BY_HAND = Tier.INCONCLUSIVE.value, JUDGE_FAILED, "no_verdict", "ungraded", "by_hand"


@dataclass(frozen=True)
class Points:
    """Points of one grade cell, or of several together: earned + open + lost is always the maximum.

    Attributes:
        earned: what counts now. For an inconclusive task, this is the lower of the tiers that the measurement could not separate.
        open: what a review can still add.
        maximum: what can be earned. Extra credit from an instructor can exceed it and makes `lost` negative.
    """

    earned: float = 0.0
    open: float = 0.0
    maximum: float = 0.0

    @property
    def lost(self) -> float:
        """Points that a review cannot add."""
        return self.maximum - self.earned - self.open

    def __add__(self, other: Points) -> Points:
        return Points(self.earned + other.earned, self.open + other.open, self.maximum + other.maximum)

    @property
    def in_cell(self) -> str:
        """The form in the table of a class, such as "2" or "2, 2 open"; "-" where all are open."""
        return "-" if 0 < self.open == self.maximum else f"{self.earned:g}" + f", {self.open:g} open" * bool(self.open)

    @property
    def of_maximum(self) -> str:
        """What follows the earned points, such as "of 12 points, 2 open"."""
        return f"of {self.maximum:g} points" + f", {self.open:g} open" * bool(self.open)

    def __str__(self) -> str:
        """Points have this form wherever they are shown: in a check, a batch, a report, the feedback and the demo."""
        return f"{self.earned:g} {self.of_maximum}"

    def to_json(self) -> dict[str, float]:
        """Plain JSON values."""
        return {"earned": self.earned, "open": self.open, "lost": self.lost, "maximum": self.maximum}


@dataclass(frozen=True)
class Cell:
    """A grade cell as the gradebook holds it: a task of the lab, or a written question."""

    name: str
    points: float
    maximum: float
    by_hand: bool = False  # an instructor has given its points
    marked: bool = False  # for an instructor


@dataclass(frozen=True)
class Reason:
    """The reason for a review, the grade cells that it concerns, and the number of their open points."""

    code: str
    text: str
    cells: tuple[str, ...]
    open: float = 0.0

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Review:
    """The points of a submission, and the reasons for a review. Without a reason there is no review."""

    points: Points
    reasons: tuple[Reason, ...] = ()
    open: Mapping[str, float] = field(default_factory=dict)  # points, by grade cell

    @property
    def needed(self) -> bool:
        """Whether an instructor must review it."""
        return bool(self.reasons)

    @property
    def cells(self) -> frozenset[str]:
        """The grade cells that an instructor must review."""
        return frozenset(name for reason in self.reasons for name in reason.cells)

    @classmethod
    def of(cls, lab: Lab, verdict: Verdict | None, cells: Iterable[Cell] | None = None) -> Review:
        """The points from a verdict and the gradebook.

        Args:
            cells: all cells of the gradebook. None if it has none yet; then the verdict alone decides.
        """
        total, waiting, found = Points(), dict[str, float](), dict[tuple[str, str], list[str]]()
        for cell in _judged(lab, verdict) if cells is None else cells:
            reason = _reason(lab, verdict, cell) if cell.marked else None
            waiting[cell.name] = 0.0 if reason is None or reason[0] == BY_HAND else cell.maximum - cell.points
            total += Points(cell.points, waiting[cell.name], cell.maximum)
            if reason:
                found.setdefault(reason, []).append(cell.name)
        reasons = (Reason(*reason, tuple(names), sum(waiting[name] for name in names)) for reason, names in found.items())
        return cls(total, tuple(reasons), waiting)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        reasons = [{"code": one.code, "text": one.text, "cells": list(one.cells)} for one in self.reasons]
        return {"needed": self.needed, "points": self.points.to_json(), "reasons": reasons}


class Reviewed:
    """What has a review and therefore points."""

    review: Review

    @property
    def score(self) -> float:
        """Points earned so far, before a penalty."""
        return self.review.points.earned

    @property
    def max_score(self) -> float:
        """Points of the tasks and the written questions."""
        return self.review.points.maximum


def _judged(lab: Lab, verdict: Verdict | None) -> Iterable[Cell]:
    """The lab's tasks as a verdict leaves them."""
    outcomes = {outcome.task.id: outcome for outcome in verdict.outcomes} if verdict else {}
    for task in lab.tasks:
        outcome = outcomes.get(task.id)
        marked = outcome is None or outcome.tier == Tier.INCONCLUSIVE
        yield Cell(task.id, outcome.points if outcome else 0.0, task.points, marked=marked)


def _reason(lab: Lab, verdict: Verdict | None, cell: Cell) -> tuple[str, str]:
    """Code and text for a cell that is marked."""
    titles = {task.id: task.title for task in lab.tasks}
    title = titles.get(cell.name, "the written question" if cell.name == "written" else f"written question {cell.name!r}")
    if cell.by_hand:
        return BY_HAND, f"{title}: points were given by hand before the last grading, check whether they still fit"
    if cell.name in titles and verdict is None:
        return NO_VERDICT, "no verdict: grade this submission again"
    if cell.name in titles and verdict and verdict.fault:
        return FAULT, f"the examiner failed: {verdict.fault}"
    for outcome in verdict.outcomes if verdict else ():
        if outcome.task.id == cell.name and outcome.tier == Tier.INCONCLUSIVE:
            code = outcome.code if outcome.code in _CAUSES else INCONCLUSIVE
            message = outcome.remark.removeprefix("Inconclusive: ")  # the cause is said before
            return code, f"{title}: {_CAUSES.get(code, 'inconclusive')}. {message[:1].upper()}{message[1:]}".strip()
    return UNGRADED, f"{title} has no points yet"
