"""Task 3: which signatures are worth measuring within a budget. The judge tries every subset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from course_lib.labs.framework.criteria import Criterion
from course_lib.labs.framework.guest import Failed, Guest
from course_lib.labs.lab03_tuning.judge.words import hint_after
from course_lib.labs.lab03_tuning.recorded_tables import recorded_ms

FUNCTION = "worth_measuring"
_SIGNATURES = 12
_CASES = 6
_NEAR = 1 - 1e-6
Row = dict[str, Any]  # signature, expected_saving_ms, measuring_ms


@dataclass(frozen=True)
class Question:
    """The layers of a network, in order, and a budget of measuring time in ms. Equal layers have equal rows."""

    layers: Sequence[Row]
    budget: int

    @cached_property
    def signatures(self) -> dict[str, tuple[float, int]]:
        """By signature, the expected saving of all its layers, and the time to measure it once."""
        counts = Counter(row["signature"] for row in self.layers)
        return {
            row["signature"]: (counts[row["signature"]] * row["expected_saving_ms"], row["measuring_ms"]) for row in self.layers
        }

    def cost(self, picked: Sequence[str]) -> int:
        """Measuring time of these signatures."""
        return sum(self.signatures[name][1] for name in picked)

    def saving(self, picked: Sequence[str]) -> float:
        """Their expected saving."""
        return sum(self.signatures[name][0] for name in picked)

    @cached_property
    def most(self) -> float:
        """The largest saving within the budget."""
        savings, costs = np.array(list(self.signatures.values())).T
        subsets = (np.arange(1 << len(savings))[:, None] >> np.arange(len(savings))) & 1
        return float((subsets @ savings)[subsets @ costs <= self.budget].max())


def questions(rng: np.random.Generator) -> list[Question]:
    """Fresh networks, whose savings are shares of recorded times. In each, three simple rules are not the best."""
    found: list[Question] = []
    while len(found) < _CASES:
        one = _drawn(rng)
        if all(one.saving(rule(one)) < 0.98 * one.most for _, rule, _ in _MISTAKES):
            found.append(one)
    return found


def _drawn(rng: np.random.Generator) -> Question:
    rows: list[Row] = []
    for index in range(_SIGNATURES):
        saving = round(float(rng.choice(recorded_ms()) * rng.uniform(0.02, 0.4)), 6)
        row = {"signature": f"conv_{index}", "expected_saving_ms": saving, "measuring_ms": int(rng.integers(20, 300))}
        rows += [row] * int(rng.choice((1, 1, 2, 3, 6)))
    total = sum({row["signature"]: row["measuring_ms"] for row in rows}.values())
    return Question([rows[index] for index in rng.permutation(len(rows))], int(rng.uniform(0.2, 0.5) * total))


@dataclass(frozen=True)
class Picked:
    """A question, and the signatures that answer it, or why there are none.

    Attributes:
        over_budget: measuring the signatures takes longer than the budget.
        failed: the function raised an error.
    """

    question: Question
    names: Sequence[str]
    said: str = ""
    empty: bool = False
    over_budget: bool = False
    failed: bool = False

    @property
    def right(self) -> bool:
        """Whether no other choice saves more."""
        return not self.said and self.question.saving(self.names) >= _NEAR * self.question.most


def picked(learner: Guest, rng: np.random.Generator) -> list[Picked]:
    """The learner's choice for each question.

    Raises:
        EngineError: the process of the file failed.
    """
    found = []
    for asked in questions(rng):
        answer = learner.call(FUNCTION, asked.layers, asked.budget)
        found.append(_picked(asked, answer))
        if found[-1].empty:
            break
    return found


def _picked(asked: Question, answer: Any) -> Picked:
    if isinstance(answer, Failed):
        return Picked(asked, (), f"worth_measuring failed: {answer.line}", answer.empty, failed=True)
    if not isinstance(answer, list) or not all(isinstance(name, str) and name in asked.signatures for name in answer):
        return Picked(asked, (), "worth_measuring did not return a list of signatures of the layers")
    if len(set(answer)) != len(answer):
        return Picked(asked, (), "worth_measuring returned a signature twice: equal layers are measured once")
    if asked.cost(answer) > asked.budget:
        said = f"Measuring these signatures takes {asked.cost(answer)} ms, the budget is {asked.budget} ms"
        return Picked(asked, (), said, over_budget=True)
    return Picked(asked, answer)


def criteria(found: Sequence[Picked]) -> list[Criterion]:
    """For all points."""
    right, count = sum(one.right for one in found), len(found)
    name = "networks with the largest saving within the budget"
    return [Criterion(name, f"{right} of {count}", f"{count} of {count}", right == count)]


def described(found: Sequence[Picked]) -> tuple[str, str]:
    """The mistake that explains the answers, in words, with a hint."""
    if wrong := next((one for one in found if one.said), None):
        usual = "A signature is measured once, and all layers with this signature use the result."
        if wrong.failed:
            usual = "Call it in the notebook with the rows of the cell above, and with other budgets."
        hint = hint_after(wrong.said, usual)
        if wrong.over_budget:
            hint = "What do the `measuring_ms` of your signatures add up to, and when do you compare that with the budget?"
        return f"{wrong.said}.", hint
    wrong_ones = [one for one in found if not one.right]
    for words, rule, hint in _MISTAKES:
        if wrong_ones and all(
            np.isclose(one.question.saving(one.names), one.question.saving(rule(one.question))) for one in wrong_ones
        ):
            return words, hint
    return "", "With 12 signatures there are 4096 choices. Which of them fit into the budget, and which of those saves most?"


def _greedy(asked: Question, key: Callable[[str], float]) -> list[str]:
    names: list[str] = []
    for name in sorted(asked.signatures, key=key, reverse=True):
        if asked.cost([*names, name]) <= asked.budget:
            names.append(name)
    return names


def _by_ratio(asked: Question) -> list[str]:
    return _greedy(asked, lambda name: asked.signatures[name][0] / asked.signatures[name][1])


def _by_saving(asked: Question) -> list[str]:
    return _greedy(asked, lambda name: asked.signatures[name][0])


def _one_layer_each(asked: Question) -> list[str]:
    """The best choice if each signature had one layer."""
    single = Question(list({row["signature"]: row for row in asked.layers}.values()), asked.budget)
    names = list(single.signatures)
    savings, costs = np.array(list(single.signatures.values())).T
    subsets = (np.arange(1 << len(names))[:, None] >> np.arange(len(names))) & 1
    best = int(np.argmax(np.where(subsets @ costs <= asked.budget, subsets @ savings, -1)))
    return [name for index, name in enumerate(names) if subsets[best][index]]


_MISTAKES: Sequence[tuple[str, Callable[[Question], list[str]], str]] = (
    (
        "The signatures were taken by saving per ms of measuring, and the rest of the budget is not used well.",
        _by_ratio,
        "The best ratio first leaves a gap at the end of the budget. Which two signatures would fill it better than one?",
    ),
    (
        "The signatures with the largest savings were taken first.",
        _by_saving,
        "A large saving may cost the budget of three others. Compare sets of signatures, not single ones.",
    ),
    (
        "The savings of equal layers were not added.",
        _one_layer_each,
        "How many layers have the same signature? All of them become faster by one measurement.",
    ),
)
