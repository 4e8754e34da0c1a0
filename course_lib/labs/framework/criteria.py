"""Criteria: the requirements of a task, what was found, and whether each one is met, not met, or not decided."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from course_lib.benchmark import Interval

ALL, HALF = "all points", "half of the points"
_ANSWERS = {True: "met", False: "not met", None: "not decided"}
BUSY = "the machine is busy"
_YES = "yes"


@dataclass(frozen=True)
class Criterion:
    """One requirement of a task, with its result.

    Attributes:
        name: what was examined, such as ``"speed over PyTorch eager"``.
        found: the value with its unit, and with its interval if it was measured.
        bound: the value that was required, with every allowance that was applied.
        met: True, False, or None if the measurement could not decide.
        needed_for: `ALL` or `HALF`.
    """

    name: str
    found: str
    bound: str
    met: bool | None
    needed_for: str = ALL

    @classmethod
    def yes_or_no(cls, name: str, met: bool, needed_for: str = ALL) -> Criterion:
        """A requirement that has no value to be shown."""
        return cls(name, "yes" if met else "no", _YES, met, needed_for)

    @property
    def has_value(self) -> bool:
        """Whether a value was compared with a bound; not so after `yes_or_no`."""
        return self.bound != _YES

    @property
    def answer(self) -> str:
        """``"met"``, ``"not met"`` or ``"not decided"``."""
        return _ANSWERS[self.met]

    def __str__(self) -> str:
        if not self.has_value:
            return f"{self.name} (for {self.needed_for}): {self.answer}"
        return f"{self.name}: found {self.found}, {self.needed_for} need {self.bound}: {self.answer}"


def all_met(criteria: Iterable[Criterion]) -> bool | None:
    """Whether every criterion is met: no if one is not, None if one is not decided."""
    answers = [criterion.met for criterion in criteria]
    return False if False in answers else None if None in answers else True


def tier(full: Iterable[Criterion], half: Iterable[Criterion]) -> tuple[str, bool]:
    """The tier of `Outcome` that follows from both lists, and whether half of the points are earned in any case."""
    whole, part = all_met(full), all_met(half)
    if whole:
        return "full", True
    if part:
        return ("inconclusive" if whole is None else "partial"), True
    return ("inconclusive" if part is None else "none"), False


def summary(criteria: Iterable[Criterion], found_tier: str, cause: str = BUSY) -> str:
    """One line that names the criteria that cost points, and for an inconclusive tier its `cause`."""
    criteria = tuple(criteria)
    undecided, failed = ([one for one in criteria if one.met is answer] for answer in (None, False))
    if found_tier == "inconclusive":
        return f"Inconclusive: {cause}. Not decided: {'; '.join(map(_short, undecided))}."
    lowest = [one for one in failed if one.needed_for == HALF] or failed
    if not failed:
        return "Every criterion is met."
    if not any(one.has_value for one in lowest):
        return f"Not met (for {lowest[0].needed_for}): {'; '.join(one.name for one in lowest)}."
    return f"Not met: {'; '.join(map(_short, lowest))}."


def reaches_threshold(interval: Interval, threshold: float) -> bool | None:
    """Whether a ratio reaches a threshold: yes, no, or None if the interval holds both answers."""
    return (interval.low >= threshold) if interval.excludes(threshold) else None


def together(full: Iterable[Criterion], half: Iterable[Criterion]) -> tuple[Criterion, ...]:
    """Both lists without repetition: what half of the points need too is listed once, for them."""
    half = tuple(half)
    repeated = {(one.name, one.bound) for one in half}
    return (*(one for one in full if (one.name, one.bound) not in repeated), *half)


def _short(criterion: Criterion) -> str:
    if not criterion.has_value:
        return f"{criterion.name} (for {criterion.needed_for})"
    return f"{criterion.name} is {criterion.found}, {criterion.needed_for} need {criterion.bound}"
