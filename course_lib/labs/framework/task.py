"""A task of a lab, and what a submission earned with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from course_lib._util.html import GREEN, ORANGE, VERMILION, check_card
from course_lib.labs.framework.criteria import NO_REFERENCE, Criterion

Check = Callable[[Any], Iterable[Criterion]]

NOT_EXAMINED = "not_examined"  # something is missing on the grader's machine
TOO_FEW = "too_few"  # the data are too few to decide
UNUSUAL = "unusual"  # better than any solution that is known
JUDGE_FAILED = "fault"  # the course's own code failed while it judged this task


@dataclass(frozen=True)
class Task:
    """A part of a lab that earns points.

    Attributes:
        id: also the name of its grade cell in the notebook.
        check: yields the criteria of a submission, the cheapest first, from the lab's `Work`.
    """

    id: str
    title: str
    points: float
    check: Check | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class Outcome:
    """What one task earned, why, and what to look at next.

    Attributes:
        tier: ``"full"``, ``"partial"``, ``"none"``, or ``"inconclusive"`` when measuring could not decide between two tiers;
            `points` are then those of the lower one and an instructor has to look.
        message: what was expected and what was found.
        hint: where to look, empty at full points.
        criteria: each requirement that was judged, with what was found and the bound that was used.
        code: `CourseError.code` of the error that cost the points, or why it is inconclusive: `NOT_EXAMINED`, `NO_REFERENCE`,
            `UNUSUAL` or `JUDGE_FAILED`; "" if a busy machine is the cause, and without an error.
    """

    task: Task
    tier: str
    points: float
    message: str
    hint: str = ""
    criteria: tuple[Criterion, ...] = ()
    code: str = ""

    @property
    def open(self) -> bool:
        """Whether only the grader can decide it. A task that lost its points is never open, whatever its code says."""
        return self.tier == "inconclusive" and self.code == NO_REFERENCE

    @property
    def passed(self) -> bool:
        """Whether it has all points, or misses nothing of what can be decided without the reference."""
        return self.tier == "full" or (self.open and all(criterion.met is not False for criterion in self.criteria))

    @property
    def mark(self) -> str:
        """The tier in a word for the learner."""
        return "open" if self.open else _MARKS[self.tier][0]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `from_json` reads them back."""
        values = asdict(replace(self, task=replace(self.task, check=None)))
        del values["task"]["check"]
        return values

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Outcome:
        """The outcome that `to_json` wrote."""
        criteria = tuple(Criterion(**row) for row in values.get("criteria", ()))
        return cls(**{**values, "task": Task(**values["task"]), "criteria": criteria})

    def _repr_html_(self) -> str:
        return check_card(
            *(self.task.title, self.mark, _MARKS[self.tier][1], self.message),
            aside=f"({self.points:g} of {self.task.points:g} points)",
            criteria=self.criteria,
            hint=self.hint,
        )


_MARKS = {
    "full": ("passed", GREEN),
    "partial": ("partly", ORANGE),
    "inconclusive": ("inconclusive", ORANGE),
    "none": ("not yet", VERMILION),
}


def grouped(outcomes: Iterable[Outcome]) -> list[list[Outcome]]:
    """Outcomes in order, in groups. Neighbors that lost their points for the same reason form one group."""
    groups: list[list[Outcome]] = []
    for one in outcomes:
        if groups and one.tier == "none" and (one.message, one.hint) == (groups[-1][-1].message, groups[-1][-1].hint):
            groups[-1].append(one)
        else:
            groups.append([one])
    return groups
