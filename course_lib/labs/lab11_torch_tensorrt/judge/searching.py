"""Task 3: simulated compilations of a model in which up to two kinds of operators are computed wrongly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np

from course_lib.labs.framework.criteria import HALF, Criterion
from course_lib.labs.framework.guest import Denied, Failed, Guest

FUNCTION = "find_wrong"
_KINDS = (
    "relu", "sigmoid", "tanh", "erf", "exp", "log", "sqrt", "abs", "sin", "cos", "neg", "floor", "ceil", "round", "sign", "maximum",
    "minimum", "convolution", "addmm", "bmm", "mm", "_softmax", "native_layer_norm", "permute", "reshape", "expand", "clone", "cat",
    "unsqueeze", "constant_pad_nd", "elu", "leaky_relu", "softplus", "hardsigmoid", "cumsum", "amax", "amin", "argmax", "sort", "embedding",
)  # fmt: skip
_LEAST, _MOST = 32, 40
# Error of PyTorch in this type, and the least error of a wrong operator. An approximation in FP32 is off by less than FP16 rounds.
_TYPES = ((3e-7, 2e-4), (7e-4, 0.05), (3e-3, 0.2))
_LEAST_TIMES = 60  # times PyTorch's error: the least error of a wrong operator
_ROUNDING = (0.5, 3.0)  # times PyTorch's error: what the engine rounds


@dataclass
class Model:
    """A chain of operators, and what its compilations show.

    Attributes:
        chain: the operator of each node.
        wrong: kinds that are computed wrongly, with the error that they cause.
        eager: the error of PyTorch.
        budget: compilations that are allowed.
        compilations: those that were made: what was kept in PyTorch, and the smallest segment.
    """

    chain: Sequence[str]
    wrong: dict[str, float]
    eager: float
    rng: np.random.Generator
    budget: int
    compilations: list[tuple[frozenset[str], int]] = field(default_factory=list)

    def compiled(self, torch_executed_ops: Any, min_block_size: Any = 5) -> list[float]:
        """The errors of the engine and of PyTorch, both compared with FP64."""
        kept = frozenset(str(name) for name in torch_executed_ops)
        self.compilations.append((kept, int(min_block_size)))
        inside = [f"torch.ops.{kind}" not in kept for kind in self.chain]
        runs = [(here, list(run)) for here, run in groupby(zip(inside, self.chain, strict=True), key=lambda pair: pair[0])]
        in_engines = {kind for here, run in runs if here and len(run) >= int(min_block_size) for _, kind in run}
        causes = [error for kind, error in self.wrong.items() if kind in in_engines]
        rounding = self.eager * float(self.rng.uniform(*_ROUNDING)) if in_engines else self.eager
        return [float(sum([rounding, *causes])), self.eager]


def models(rng: np.random.Generator) -> list[Model]:
    """Fresh models in a secret order: without a wrong kind, with one, and with two. One error is near the least one, and one is NaN."""
    types = [0, int(rng.integers(1, 3)), *rng.permutation(len(_TYPES)), int(rng.integers(3))]  # one wrong kind is in FP32
    counts = [1, 1, 0, int(rng.integers(2)), 2, 2]
    near, nan = int(rng.integers(2)), int(rng.integers(4, 6))
    made = []
    for index in rng.permutation(len(counts)):
        kinds = [f"aten.{name}.default" for name in rng.permutation(_KINDS)[: int(rng.integers(_LEAST, _MOST + 1))]]
        chain = [str(name) for name in rng.permutation([*kinds, *rng.choice(kinds, 20)])]
        eager, least = _TYPES[types[index]]
        names = rng.choice(kinds, counts[index], replace=False)
        wrong = {str(name): float(least * rng.uniform(1, 20)) for name in names}
        if index == near:
            wrong[str(names[0])] = float(_LEAST_TIMES * eager * rng.uniform(1.0, 1.05))
        if index == nan:
            wrong[str(names[0])] = float("nan")
        made.append(Model(chain, wrong, eager, rng, budget(len(kinds))))
    return made


def budget(kinds: int) -> int:
    """Compilations that a search by halves needs for two wrong kinds of `kinds`, and one more."""
    return 2 + 4 * int(np.ceil(np.log2(kinds)))


@dataclass(frozen=True)
class Searched:
    """A model, and what the search returned, or why there is nothing."""

    model: Model
    found: frozenset[str]
    said: str = ""
    empty: bool = False

    @property
    def right(self) -> bool:
        """Whether it found all wrong kinds, no other, and within the budget."""
        return not self.said and self.found == frozenset(self.model.wrong)

    @property
    def over_budget(self) -> bool:
        """Whether it asked for more compilations than the budget."""
        return len(self.model.compilations) > self.model.budget


def searched(learner: Guest, rng: np.random.Generator) -> list[Searched]:
    """Let the function search in secret models.

    Raises:
        EngineError: the process of the file failed.
    """
    found = []
    for model in models(rng):
        kinds = sorted(set(model.chain))
        answer = learner.call(FUNCTION, kinds, _limited(model), model.budget)
        found.append(_searched(model, answer))
        if found[-1].empty:
            break
    return found


def _limited(model: Model) -> Any:
    def error(torch_executed_ops: Any, min_block_size: Any = 5) -> list[float]:
        if len(model.compilations) >= model.budget:
            model.compilations.append((frozenset(), 0))  # so that it is seen, even if the function catches the error
            raise Denied(f"the budget of {model.budget} compilations is used up")
        if not isinstance(torch_executed_ops, list) or isinstance(min_block_size, bool) or not isinstance(min_block_size, int):
            raise Denied("expected a list of names, and an integer")
        return model.compiled(torch_executed_ops, min_block_size)

    return error


def _searched(model: Model, answer: Any) -> Searched:
    if len(model.compilations) > model.budget:
        return Searched(model, frozenset(), f"find_wrong asked for more compilations than the budget of {model.budget}")
    if isinstance(answer, Failed):
        return Searched(model, frozenset(), f"find_wrong failed: {answer.line}", answer.empty)
    kinds = set(model.chain)
    if not isinstance(answer, list) or not all(isinstance(name, str) and name in kinds for name in answer):
        return Searched(model, frozenset(), f"find_wrong returned {str(answer)[:60]}, expected a list of the given kinds")
    return Searched(model, frozenset(answer))


def criteria(found: Sequence[Searched]) -> tuple[list[Criterion], list[Criterion]]:
    """For all points, and for half of them."""
    few = [one for one in found if len(one.model.wrong) < 2]
    both = []
    rows = (("models whose wrong kinds were found", found, ""), ("models with at most one wrong kind", few, HALF))
    for name, these, needed in rows:
        right = sum(one.right for one in these)
        one = Criterion(name, f"{right} of {len(these)}", f"{len(these)}", right == len(these))
        both.append([Criterion(one.name, one.found, one.bound, one.met, needed) if needed else one])
    return both[0], both[1]


def described(found: Sequence[Searched]) -> tuple[str, str]:
    """The mistake that explains the answers, in words, with a hint."""
    asked = [one for row in found for one in row.model.compilations]
    names = {name for kept, _ in asked for name in kept}
    if names and not any(name.startswith("torch.ops.") for name in names):
        return (
            f"2.2.0 ignored the names in torch_executed_ops, such as {min(names)[:40]!r}.",
            "Lecture 13 has the form that it reads. A name in another form changes nothing, without an error.",
        )
    if any(kept and size > 1 for kept, size in asked):
        return (
            "Compilations with operators in PyTorch had a min_block_size above 1, so small segments left TensorRT, too.",
            "An error that disappears proves nothing if other operators have left TensorRT with it.",
        )
    if wrong := next((one for one in found if one.said), None):
        if wrong.over_budget and _by_halves(wrong.model):
            said = f"{wrong.said}: it follows errors that are rounding."
            return said, "An engine may round a few times as much as PyTorch does in the same type. How far off is too far?"
        hint = "How many compilations does each step save, if it keeps half of the suspects in PyTorch?"
        return f"{wrong.said}.", hint if wrong.over_budget else "Call it in the notebook with the model of the cell above."
    for one in sorted(found, key=lambda one: (len(one.model.wrong), bool(np.isnan(sum(one.model.wrong.values()))))):
        if not one.right:
            return _described_wrong(one)
    return "", ""


def _by_halves(model: Model) -> bool:
    """Whether the search tests all kinds first, and then one half. Such a search exceeds the budget only if it sees too many errors."""
    kinds = len(set(model.chain))
    (first, _), (second, _) = model.compilations[:2]
    return not first and 0.3 < len(second) / kinds < 0.7


def _described_wrong(one: Searched) -> tuple[str, str]:
    wrong = frozenset(one.model.wrong)
    if one.found - wrong:
        said = f"{_kinds(one.found - wrong)} reported that round only: PyTorch's own error is {one.model.eager:g}."
        if any(np.isnan(error) for error in one.model.wrong.values()):
            return said, "An error of NaN is larger than each bound. What does a comparison with NaN answer?"
        return said, "The engine may round a few times as much as PyTorch does in the same type. How far off is too far?"
    said = f"{_kinds(wrong - one.found)} not found, in a model with {len(wrong)}."
    if any(np.isnan(error) for error in one.model.wrong.values()):
        return said, "The engine's error can be NaN. What does a comparison with NaN answer?"
    if len(wrong) > 1 and one.found:
        return said, "If one half is wrong, the other one can be wrong, too."
    return said, "An error can be small and still be a mistake. Compare it with PyTorch's error in the same type."


def _kinds(names: frozenset[str]) -> str:
    return "1 kind was" if len(names) == 1 else f"{len(names)} kinds were"
