"""A task of a lab: its criteria, which are met, not met or not decided, and the outcome that a submission earned with it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from typing import Any

from course_lib._util.html import GREEN, ORANGE, RED, check_card
from course_lib.benchmark import Interval
from course_lib.labs.requirements import ALL, COLUMNS, HALF, rows

# Values of `Criterion.code` and `Outcome.code`: why a task is not decided.
NO_REFERENCE = "no_reference"  # only the grader can decide it, because it has the reference
NOT_EXAMINED = "not_examined"  # something is missing on the grader's machine
TOO_FEW = "too_few"  # the data are too few to decide
UNUSUAL = "unusual"  # better than any solution that is known
JUDGE_FAILED = "fault"  # the course's own code failed while it judged this task
_YES = "yes"
LISTED = 4  # wrong cases that a message shows


class Tier(str, Enum):
    """What a task earned. The value is what JSON files hold."""

    FULL = "full"
    PARTIAL = "partial"
    NONE = "none"
    INCONCLUSIVE = "inconclusive"  # measuring could not decide between two tiers: the points are those of the lower one

    __str__ = str.__str__


_MARKS = {
    Tier.FULL: ("passed", GREEN),
    Tier.PARTIAL: ("partly", ORANGE),
    Tier.INCONCLUSIVE: ("inconclusive", ORANGE),
    Tier.NONE: ("not yet", RED),
}


@dataclass(frozen=True)
class Criterion:
    """One requirement of a task, with its result.

    Attributes:
        name: what was examined, such as ``"speed over PyTorch eager"``.
        found: the value with its unit, and with its interval if it was measured.
        bound: the value that was required, with every allowance that was applied.
        met: True, False, or None if the measurement could not decide.
        needed_for: `ALL` or `HALF`.
        hint: where to look if it is not met.
        code: why it is not decided, as in `Outcome.code`; "" for a measurement.
        symptom: a sentence for the learner if it is not met, or not decided with a code; default: name, value and bound.
        expected: what the task asks the learner to find. A self-check shows it from the second failure on, the grader always.
    """

    name: str
    found: str
    bound: str
    met: bool | None
    needed_for: str = ALL
    hint: str = ""
    code: str = ""
    symptom: str = ""
    expected: str = field(default="", repr=False)  # a script that prints a check does not tell it

    @property
    def has_value(self) -> bool:
        """Whether a value was compared with a bound; not so after `holds`."""
        return self.bound != _YES

    @property
    def withholds(self) -> bool:
        """Whether it is not met, and a first failure does not say what was expected."""
        return self.met is False and bool(self.expected)


@dataclass(frozen=True)
class Task:
    """A part of a lab that earns points. Its check yields the criteria of a submission, the cheapest first, from the lab's `Work`."""

    id: str  # also the name of its grade cell in the notebook
    title: str
    points: float
    check: Callable[[Any], Iterable[Criterion]] | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class Outcome:
    """What one task earned, why, and what to look at next.

    Attributes:
        message: the symptom, what was expected, and what is right.
        hint: where to look, empty at full points.
        criteria: each requirement that was judged, with what was found and the bound that was used.
        code: `CourseError.code` of the error that cost the points, or why it is inconclusive: `NOT_EXAMINED`, `NO_REFERENCE`,
            `UNUSUAL` or `JUDGE_FAILED`; "" if a busy machine is the cause, and without an error.
    """

    task: Task
    tier: Tier
    points: float
    message: str
    hint: str = ""
    criteria: tuple[Criterion, ...] = ()
    code: str = ""

    @property
    def open(self) -> bool:
        """Whether only the grader can decide it. A task that lost its points is never open, whatever its code says."""
        return self.tier == Tier.INCONCLUSIVE and self.code == NO_REFERENCE

    @property
    def remark(self) -> str:
        """The message without what a table of the requirements shows."""
        return self.message.replace(findings(self.criteria), " ".join(_symptoms(self.criteria))).strip()

    @property
    def passed(self) -> bool:
        """Whether it has all points, or misses nothing of what can be decided without the reference."""
        return self.tier == Tier.FULL or (self.open and all(criterion.met is not False for criterion in self.criteria))

    @property
    def mark(self) -> str:
        """The tier in a word for the learner."""
        return "open" if self.open else _MARKS[self.tier][0]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `from_json` reads them back."""
        values = asdict(replace(self, task=replace(self.task, check=None)))
        del values["task"]["check"]
        return {**values, "tier": str(self.tier)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Outcome:
        """The outcome that `to_json` wrote."""
        criteria = tuple(Criterion(**row) for row in values.get("criteria", ()))
        return cls(**{**values, "task": Task(**values["task"]), "tier": Tier(values["tier"]), "criteria": criteria})

    def _repr_html_(self) -> str:
        aside = f"({self.points:g} of {self.task.points:g} points)"
        card = self.task.title, self.mark, _MARKS[self.tier][1], self.message
        return check_card(*card, aside=aside, columns=COLUMNS, requirements=rows(self.criteria), hint=self.hint)


def grouped(outcomes: Iterable[Outcome]) -> list[list[Outcome]]:
    """Outcomes in order, in groups. Neighbors that lost their points for the same reason form one group."""
    groups: list[list[Outcome]] = []
    for one in outcomes:
        if groups and one.tier == Tier.NONE and (one.message, one.hint) == (groups[-1][-1].message, groups[-1][-1].hint):
            groups[-1].append(one)
        else:
            groups.append([one])
    return groups


def at_least(name: str, value: float, bound: float, needed_for: str = ALL, *, unit: str = "", hint: str = "") -> Criterion:
    """A value that must reach a bound. NaN does not reach any."""
    return Criterion(name, _number(value, unit), f"at least {_number(bound, unit)}", value >= bound, needed_for, hint)


def at_most(name: str, value: float, bound: float, needed_for: str = ALL, *, unit: str = "", hint: str = "") -> Criterion:
    """A value that must not exceed a bound. NaN exceeds every bound."""
    return Criterion(name, _number(value, unit), f"at most {_number(bound, unit)}", value <= bound, needed_for, hint)


def equals(name: str, value: object, wanted: object, needed_for: str = ALL, *, bound: str = "", hint: str = "") -> Criterion:
    """A value that must be the wanted one. If the task is to find that value, `bound` describes it."""
    expected = str(wanted) if bound else ""
    return Criterion(name, str(value), bound or str(wanted), value == wanted, needed_for, hint, expected=expected)


def holds(name: str, met: bool, needed_for: str = ALL, *, hint: str = "") -> Criterion:
    """A requirement that does not have a value to be shown."""
    return Criterion(name, "yes" if met else "no", _YES, met, needed_for, hint)


def all_right(name: str, wrong: Sequence[str], count: int, needed_for: str = ALL, *, hint: str = "") -> Criterion:
    """Several cases that must all be right, of which at most four wrong ones are listed, each in a line: its name, a colon, the problem.

    One problem of all cases is listed once.
    """
    problems = {line.partition(": ")[2] or line for line in wrong}
    listed = f"each: {problems.pop()}" if len(problems) == 1 and len(wrong) == count > 1 else "; ".join(wrong[:LISTED])
    found = f"{count - len(wrong)} of {count}" + (f" ({listed})" if wrong else "")
    return Criterion(name, found, f"{count} of {count}", not wrong, needed_for, hint)


def speed_at_least(name: str, ratio: Interval, bound: float, needed_for: str = ALL, *, hint: str = "") -> Criterion:
    """A measured ratio that must reach a bound; not decided while its interval contains the bound."""
    return Criterion(name, str(ratio), f"at least {bound:g}x", reaches_threshold(ratio, bound), needed_for, hint)


def reaches_threshold(interval: Interval, threshold: float) -> bool | None:
    """Whether a ratio reaches a threshold: yes, no, or None if the interval holds both answers."""
    return (interval.low >= threshold) if interval.excludes(threshold) else None


def open_without_reference(name: str, found: str, needed_for: str = ALL) -> Criterion:
    """A requirement that only the grader can decide, because it has the reference."""
    return Criterion(name, found, "compared with the reference", None, needed_for, code=NO_REFERENCE)


def all_met(criteria: Iterable[Criterion]) -> bool | None:
    """Whether every criterion is met: no if one is not, None if one is not decided."""
    answers = [criterion.met for criterion in criteria]
    return False if False in answers else None if None in answers else True


def tier(criteria: Iterable[Criterion]) -> tuple[Tier, bool]:
    """The tier that follows, and whether half of the points are earned in any case: what that needs, all points need too."""
    criteria = tuple(criteria)
    whole, part = all_met(criteria), all_met(one for one in criteria if one.needed_for == HALF)
    if whole:
        return Tier.FULL, True
    if part:
        return (Tier.INCONCLUSIVE if whole is None else Tier.PARTIAL), True
    return (Tier.INCONCLUSIVE if part is None else Tier.NONE), False


def undecided(criteria: Iterable[Criterion]) -> str:
    """The criteria that are not decided, with their bounds."""
    return "; ".join(map(_short, _by_name(one for one in criteria if one.met is None)))


def missed(criteria: Iterable[Criterion]) -> list[Criterion]:
    """The criteria that are not met, those that cost all points first."""
    return sorted((one for one in criteria if one.met is False), key=lambda one: one.needed_for != HALF)


def findings(criteria: Iterable[Criterion]) -> str:
    """What was missed, with its bounds, what was expected, and what was met, with the submission's own numbers. Names are listed once."""
    criteria = tuple(criteria)
    wrong = _by_name(missed(criteria))
    met = _by_name(one for one in criteria if one.met and one.name not in {other.name for other in wrong})
    parts = _symptoms(criteria)
    if others := [one for one in wrong if not one.symptom]:
        parts.append(f"Not met: {'; '.join(map(_short, others))}.")
    if answers := [one.expected for one in wrong if one.withholds]:
        parts.append(f"Expected: {'; '.join(answers)}.")
    if met:
        shown = "; ".join(f"{one.name}: {one.found}" if one.has_value else one.name for one in met)
        parts.append(f"Also met: {shown}." if wrong else f"{shown[0].upper()}{shown[1:]}.")
    return " ".join(parts)


def _symptoms(criteria: Iterable[Criterion]) -> list[str]:
    return [one.symptom for one in _by_name(missed(criteria)) if one.symptom]


def _by_name(criteria: Iterable[Criterion]) -> list[Criterion]:
    """The first criterion of each name: if a value misses what half of the points need, it misses what all of them need as well."""
    first: dict[str, Criterion] = {}
    for criterion in criteria:
        first.setdefault(criterion.name, criterion)
    return list(first.values())


def _number(value: float, unit: str) -> str:
    exact = isinstance(value, int) or not math.isfinite(value)
    shown = f"{value:,}" if exact else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return shown + (unit if unit in ("x", "") else f" {unit}")


def _short(criterion: Criterion) -> str:
    if not criterion.has_value:
        return f"{criterion.name} (for {criterion.needed_for})"
    return f"{criterion.name} is {criterion.found}, {criterion.needed_for} need {criterion.bound}"
