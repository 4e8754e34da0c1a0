"""Task 2: the choice of least latency for secret tables. The judge enumerates every choice, so it needs no clever method."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from course_lib.labs.framework.criteria import HALF, Criterion
from course_lib.labs.framework.guest import Failed, Guest
from course_lib.labs.lab03_tuning.judge.words import hint_after
from course_lib.labs.lab03_tuning.recorded_tables import Tactic, table

FUNCTION = "choose"
LIMITS = (1, 4, 64)  # MiB, which some tactics need exactly
_LAYERS, _TACTICS, _PARTS = 7, 4, 7  # 4^7 choices of a part are enumerated
_EXACT = 1 + 1e-6
Pick = Sequence[int]


@dataclass(frozen=True)
class Question:
    """A chain of layers. A long one consists of parts between which a reformat is free, so that each is enumerated alone.

    Attributes:
        layers: the tactics of each layer.
        reformats: for each pair of neighbors the milliseconds of a reformat, which is needed if the formats between them differ.
        workspace: the limit in MiB of each chosen tactic.
    """

    layers: Sequence[Sequence[Tactic]]
    reformats: Sequence[float]
    workspace: int

    @property
    def formats(self) -> bool:
        """Whether a reformat costs time."""
        return any(self.reformats)

    def latency(self, pick: Pick) -> float:
        """Milliseconds of a choice, by the index of the tactic in each layer."""
        chosen = [tactics[index] for tactics, index in zip(self.layers, pick, strict=True)]
        between = zip(self.reformats, chosen, chosen[1:], strict=False)
        return sum(one["ms"] for one in chosen) + sum(ms for ms, a, b in between if a["writes"] != b["reads"])

    def fits(self, index: int, pick: int) -> bool:
        """Whether this tactic of a layer is within the workspace."""
        return bool(self.layers[index][pick]["workspace_mib"] <= self.workspace)

    @cached_property
    def least(self) -> float:
        """The milliseconds of the best choice."""
        return sum(_least(self._part(first)) for first in range(0, len(self.layers), _LAYERS))

    def _part(self, first: int) -> Question:
        last = first + _LAYERS
        return Question(self.layers[first:last], self.reformats[first : last - 1], self.workspace)


def questions(rng: np.random.Generator) -> list[Question]:
    """Three tables without reformats, three with them, and one of a long network."""
    asked = [_drawn(rng, limit, formats=formats) for formats in (False, True) for limit in LIMITS]
    parts = [table(rng, _LAYERS, _TACTICS, formats=True) for _ in range(_PARTS)]
    layers = [tactics for chain, _ in parts for tactics in chain]
    between = [ms for _, reformats in parts for ms in (*reformats, 0.0)][:-1]
    return [*asked, Question(layers, between, LIMITS[1])]


def _drawn(rng: np.random.Generator, limit: int, *, formats: bool) -> Question:
    """A table whose best choice needs the whole workspace, so that "at most" and "less than" are different."""
    while True:
        one = Question(*table(rng, _LAYERS, _TACTICS, formats=formats), limit)
        if replace(one, workspace=limit - 1).least > 1.001 * one.least:
            return one


def _least(part: Question) -> float:
    layers = [[one for one in tactics if one["workspace_mib"] <= part.workspace] for tactics in part.layers]
    total = np.zeros([len(tactics) for tactics in layers])
    for index, tactics in enumerate(layers):
        total = total + _along(index, total.ndim, np.array([one["ms"] for one in tactics]))
    for index, ms in enumerate(part.reformats):
        needed = np.array([[ms * (a["writes"] != b["reads"]) for b in layers[index + 1]] for a in layers[index]])
        shape = [1] * total.ndim
        shape[index : index + 2] = needed.shape
        total = total + needed.reshape(shape)
    return float(total.min())


def _along(axis: int, dimensions: int, values: np.ndarray) -> np.ndarray:
    return values.reshape([-1 if index == axis else 1 for index in range(dimensions)])


@dataclass(frozen=True)
class Chosen:
    """A question, and the pick that answers it, or why there is none.

    Attributes:
        too_large: a chosen tactic exceeds the workspace.
    """

    question: Question
    pick: Pick
    said: str = ""
    empty: bool = False
    too_large: bool = False

    @property
    def right(self) -> bool:
        """Whether it is within the limit, and no choice is faster."""
        return not self.said and self.question.latency(self.pick) <= self.question.least * _EXACT


def chosen(learner: Guest, rng: np.random.Generator) -> list[Chosen]:
    """The learner's choice for each question.

    Raises:
        EngineError: the process of the file failed.
    """
    found = []
    for asked in questions(rng):
        answer = learner.call(FUNCTION, asked.layers, asked.reformats, asked.workspace)
        found.append(_chosen(asked, answer))
        if found[-1].empty:
            break
    return found


def _chosen(asked: Question, answer: Any) -> Chosen:
    if isinstance(answer, Failed):
        return Chosen(asked, (), f"choose failed: {answer.line}", answer.empty)
    if not isinstance(answer, list) or len(answer) != len(asked.layers):
        return Chosen(asked, (), f"choose did not return one name for each of {len(asked.layers)} layers")
    pick = []
    for index, (tactics, name) in enumerate(zip(asked.layers, answer, strict=True)):
        places = [place for place, one in enumerate(tactics) if one["name"] == name]
        if not places:
            return Chosen(asked, (), f"choose returned {str(name)[:40]!r} for layer {index}, which has no such tactic")
        if not asked.fits(index, places[0]):
            found = tactics[places[0]]["workspace_mib"]
            said = f"The tactic of layer {index} needs {found} MiB of workspace, the limit is {asked.workspace}"
            return Chosen(asked, (), said, too_large=True)
        pick.append(places[0])
    return Chosen(asked, pick)


def criteria(found: Sequence[Chosen]) -> tuple[list[Criterion], list[Criterion]]:
    """For all points, and for half of them."""
    plain = [one for one in found if not one.question.formats]
    rows = (("tables", found), ("tables without reformats", plain))
    both = []
    for (name, these), needed in zip(rows, ("", HALF), strict=True):
        right = sum(one.right for one in these)
        count = len(these)
        one = Criterion(f"{name} with the least latency", f"{right} of {count}", f"{count} of {count}", right == count)
        both.append([Criterion(one.name, one.found, one.bound, one.met, needed) if needed else one])
    return both[0], both[1]


def described(found: Sequence[Chosen]) -> tuple[str, str]:
    """The mistake that explains the answers, in words, with a hint."""
    if wrong := next((one for one in found if one.said), None):
        hint = hint_after(wrong.said, "Call it in the notebook with the table of the cell above, and a workspace of 8 MiB.")
        if wrong.too_large:
            hint = "The limit holds for each chosen tactic alone. Which tactics of a layer may be chosen at all?"
        return f"{wrong.said}.", hint
    wrong_ones = [one for one in found if not one.right]
    for words, mistake, hint in _MISTAKES:
        if wrong_ones and all(_alike(one, mistake(one.question)) for one in wrong_ones):
            return words, hint
    short = [one for one in wrong_ones if len(one.question.layers) == _LAYERS]
    if short and not any(_needs_it_all(one) for one in short):
        said = "No chosen tactic needs the whole workspace, and each best choice has one that does."
        return said, "The limit is the most that a tactic may need. May it need exactly that?"
    return "", "For each format at a boundary: what is the least time of all layers before it that ends in this format?"


def _needs_it_all(one: Chosen) -> bool:
    chosen = (tactics[place] for tactics, place in zip(one.question.layers, one.pick, strict=True))
    return any(tactic["workspace_mib"] == one.question.workspace for tactic in chosen)


def _alike(one: Chosen, mistaken: Pick) -> bool:
    return bool(np.isclose(one.question.latency(one.pick), one.question.latency(mistaken), rtol=1e-9))


def _each_alone(asked: Question) -> Pick:
    return [min(_allowed(asked, index), key=lambda pick: tactics[pick]["ms"]) for index, tactics in enumerate(asked.layers)]


def _allowed(asked: Question, index: int) -> list[int]:
    return [pick for pick in range(len(asked.layers[index])) if asked.fits(index, pick)]


def _after_the_one_before(asked: Question) -> Pick:
    pick: list[int] = []
    for index, tactics in enumerate(asked.layers):
        before = asked.layers[index - 1][pick[-1]]["writes"] if pick else ""
        cost = asked.reformats[index - 1] if pick else 0.0

        def added(place: int, tactics: Any = tactics, before: str = before, cost: float = cost) -> float:
            one = tactics[place]
            return float(one["ms"] + cost * (one["reads"] != before))

        pick.append(min(_allowed(asked, index), key=added))
    return pick


def _least_workspace(asked: Question) -> Pick:
    return [
        min(_allowed(asked, index), key=lambda pick: (tactics[pick]["workspace_mib"], tactics[pick]["ms"]))
        for index, tactics in enumerate(asked.layers)
    ]


_MISTAKES: Sequence[tuple[str, Callable[[Question], Pick], str]] = (
    (
        "Each layer has its own fastest tactic, and reformats are not counted.",
        _each_alone,
        "A tactic that is a little slower may write the format that the next layer reads. What does the pair cost?",
    ),
    (
        "Each tactic was chosen for the layer before it alone.",
        _after_the_one_before,
        "A choice also decides what the next layers cost. Keep the best way to each format, and decide at the end.",
    ),
    (
        "The tactics have the least workspace, not the least time.",
        _least_workspace,
        "Layers run one after another and use the same scratch memory: the limit holds for the largest, not for the sum.",
    ),
)
